"""A study in Optuna, written as a log that the ledger stores.

Optuna's ``JournalStorage`` describes all that happens to a study by entries of a log, and replays
it when it is opened. Here the log is a list: what has been stored, and what is still to be. Whoever
uses the study stores what is pending before acting on its answers, so nothing that was decided is
ever forgotten, and many changes are one commit.

Nothing else writes the log. The same entries are what Optuna's own tools read over REST.
"""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import msgspec
import optuna
from optuna.samplers import RandomSampler
from optuna.storages import JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as State
from typing_extensions import override

from carrel_scheduler.workloads.controllers.experiments import sampling
from carrel_scheduler.workloads.controllers.experiments.contract import (
    MOST_STEPS,
    BadSuggestion,
    Ended,
    StudyState,
    StudyTrial,
    TrialState,
    WorkerRun,
)
from carrel_schema.sections import ExperimentSpec, Parameter

STUDY_ID: Final = 0
# Attributes of trials in the study, beside Optuna's own.
ERROR: Final = "carrel:error"
RESULT: Final = "carrel:result"
LAST_STEP: Final = "carrel:last_step"
STOPPED: Final = "carrel:stopped"
RUN: Final = "carrel:worker"
_STATES: Final[dict[State, TrialState]] = {
    State.COMPLETE: "completed",
    State.PRUNED: "pruned",
    State.FAIL: "failed",
}

optuna.logging.set_verbosity(optuna.logging.WARNING)
optuna.logging.disable_default_handler()
optuna.logging.enable_propagation()


class Journal(BaseJournalBackend):
    """The log in memory; see the module."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._unread = [json.loads(entry) for entry in entries]
        self.pending: list[str] = []

    @override
    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """The entries that the journal's only reader has not read yet."""
        fresh, self._unread = self._unread, []
        return fresh

    @override
    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append entries, in the form in which they are read after a restart."""
        for log in logs:
            text = json.dumps(log, separators=(",", ":"))
            self.pending.append(text)
            self._unread.append(json.loads(text))


class OptunaStudy:
    """See ``contract.Study``.

    Args:
        name: of the study, ``project/experiment``.
        spec: what is searched for, and how.
        seed: of all draws.
        entries: the stored log.
    """

    def __init__(self, name: str, spec: ExperimentSpec, seed: int, entries: Sequence[str]) -> None:
        self._spec, self._seed = spec, seed
        self._space = {
            name: sampling.distribution(one) for name, one in sorted(spec.parameters.items())
        }
        self._size = sampling.size(self._space) if self._space else math.inf
        self._journal = Journal(entries)
        self._storage = JournalStorage(self._journal)
        self._study = optuna.create_study(
            storage=self._storage,
            sampler=RandomSampler(seed=0),
            pruner=sampling.pruner(spec),
            study_name=name,
            direction=spec.direction,
            load_if_exists=True,
        )
        self._leaving: dict[int, float] = {}
        self._trials_ask = False
        self._running: dict[int, optuna.Trial] = {}
        self._made: set[sampling.Key] = set()
        self._facts: dict[int, StudyTrial] = {}
        for trial in self._study.get_trials(deepcopy=False):
            self._note(trial)

    def take_pending(self) -> Sequence[str]:
        """Remove and return the entries that are to be stored."""
        pending, self._journal.pending = self._journal.pending, []
        return pending

    def standing(self) -> StudyState:
        """See ``Study``."""
        facts = self._facts.values()
        completed = [one for one in facts if one.state == "completed"]
        failed = [one for one in facts if one.state == "failed"]
        return StudyState(
            open={one.number: one.parameters for one in facts if one.state == "open"},
            pruned=frozenset(one.number for one in facts if one.state == "pruned"),
            leaving=dict(self._leaving),
            made=len(self._facts),
            completed=len(completed),
            failed=len(failed),
            exhausted=len(self._facts) >= self._size,
            best=self._best(completed),
            last_error=failed[-1].error if failed else "",
            in_workers={
                one.number: one.run for one in facts if one.state == "open" and one.run is not None
            },
        )

    def _best(self, completed: Sequence[StudyTrial]) -> StudyTrial | None:
        better = min if self._spec.direction == "minimize" else max
        return better(completed, key=lambda one: one.value or 0.0, default=None)

    def ask(self) -> bool:
        """See ``Study``."""
        number = len(self._facts)
        if number >= self._size:
            return False
        self._study.sampler = sampling.sampler(
            self._spec, self._space, number, self._seed, self._made
        )
        trial = self._study.ask(self._space)
        if not self._space:
            self._running[trial.number] = trial
        self._read(trial.number)
        return True

    def tell(self, ended: Ended) -> None:
        """See ``Study``."""
        if self._fact(ended.number).state != "open":
            return
        frozen = self._frozen(ended.number)
        value = _value(frozen, ended.latest) if ended.state == "completed" else None
        error = ended.error
        if ended.state == "completed" and value is None:
            error = (
                f"It ended without a value: report one, `carrel.report({self._spec.metric}=...)`."
            )
        if error:
            self._set(ended.number, ERROR, error)
        if ended.state == "stopped":
            self._set(ended.number, STOPPED, value=True)
        if ended.run is not None:
            self._set(ended.number, RUN, msgspec.to_builtins(ended.run))
        self._study.tell(ended.number, value, State.FAIL if value is None else State.COMPLETE)
        self._running.pop(ended.number, None)
        self._read(ended.number)

    def assign(self, number: int, run: WorkerRun | None) -> StudyTrial:
        """See ``Study``."""
        self._set(number, RUN, msgspec.to_builtins(run))
        self._read(number)
        return self._fact(number)

    def trial(self, number: int) -> StudyTrial | None:
        """See ``Study``."""
        return self._facts.get(number)

    def report(self, number: int, values: Sequence[tuple[int | None, float]]) -> None:
        """See ``Study``."""
        for given, value in values:
            if self._fact(number).state != "open":
                break
            frozen = self._frozen(number)
            if len(frozen.intermediate_values) >= MOST_STEPS and given not in (
                frozen.intermediate_values
            ):
                continue
            last = -1 if frozen.last_step is None else frozen.last_step
            step = last + 1 if given is None else given
            self._storage.set_trial_intermediate_value(frozen._trial_id, step, value)  # noqa: SLF001
            if step < last or LAST_STEP in frozen.user_attrs:
                self._set(number, LAST_STEP, step)
            self._judge(number)
        self._read(number)

    def _judge(self, number: int) -> None:
        """Ask the pruner, once for each value, because it keeps a record of the calls."""
        if self._spec.pruner == "none" or RESULT in self._frozen(number).user_attrs:
            return
        if self._study.pruner.prune(self._study, self._frozen(number)):
            self._study.tell(number, state=State.PRUNED)
            self._running.pop(number, None)
            self._read(number)

    def result(self, number: int, value: float) -> None:
        """See ``Study``."""
        if self._fact(number).state == "open":
            self._set(number, RESULT, value)

    def pruned(self, number: int) -> bool:
        """See ``Study``."""
        return self._fact(number).state == "pruned"

    def leave(self, number: int, until: float, *, asks: bool) -> bool:
        """See ``Study``."""
        self._trials_ask |= asks
        if not self.pruned(number):
            return False
        if self._trials_ask:
            self._leaving.setdefault(number, until)
        return True

    def suggest(self, number: int, name: str, parameter: Parameter) -> Any:
        """See ``Study``."""
        fact = self._fact(number)
        if name in fact.parameters:
            return fact.parameters[name]
        if fact.state != "open":
            raise BadSuggestion(f"trial {number} has ended")
        if self._spec.sampler == "grid":
            raise BadSuggestion("a grid needs its parameters declared with the experiment")
        trial = self._running.get(number)
        if trial is None:
            self._study.sampler = sampling.sampler(self._spec, {}, number, self._seed, self._made)
            trial = optuna.Trial(self._study, self._frozen(number)._trial_id)  # noqa: SLF001
            self._running[number] = trial
        try:
            value = _suggested(trial, name, parameter)
        except ValueError as error:
            raise BadSuggestion(str(error)) from error
        self._read(number)
        return value

    def trials(self) -> list[StudyTrial]:
        """See ``Study``."""
        return [self._facts[number] for number in sorted(self._facts)]

    def _frozen(self, number: int) -> FrozenTrial:
        trial_id = self._storage.get_trial_id_from_study_id_trial_number(STUDY_ID, number)
        return self._storage.get_trial(trial_id)

    def _fact(self, number: int) -> StudyTrial:
        return self._facts[number]

    def _set(self, number: int, name: str, value: Any) -> None:
        self._storage.set_trial_user_attr(self._frozen(number)._trial_id, name, value)  # noqa: SLF001

    def _read(self, number: int) -> None:
        self._note(self._frozen(number))

    def _note(self, frozen: FrozenTrial) -> None:
        fact = _trial(frozen)
        self._facts[fact.number] = fact
        if self._space and self._space.keys() <= fact.parameters.keys():
            self._made.add(sampling.key(self._space, fact.parameters))


def _trial(frozen: FrozenTrial) -> StudyTrial:
    state = _STATES.get(frozen.state, "open")
    if state == "failed" and frozen.user_attrs.get(STOPPED):
        state = "stopped"
    return StudyTrial(
        number=frozen.number,
        state=state,
        parameters=dict(frozen.params),
        value=frozen.value if state in ("completed", "pruned") else None,
        steps=tuple(sorted(frozen.intermediate_values.items())),
        error=frozen.user_attrs.get(ERROR, ""),
        run=msgspec.convert(frozen.user_attrs.get(RUN), WorkerRun | None),
    )


def _value(frozen: FrozenTrial, latest: float | None) -> float | None:
    """The objective: the result that was set, else the last reported value."""
    if RESULT in frozen.user_attrs:
        return cast("float", frozen.user_attrs[RESULT])
    if latest is not None and len(frozen.intermediate_values) >= MOST_STEPS:
        return latest
    last = frozen.user_attrs.get(LAST_STEP, frozen.last_step)
    return None if last is None else frozen.intermediate_values[last]


def _suggested(trial: optuna.Trial, name: str, parameter: Parameter) -> Any:
    one = sampling.distribution(parameter)
    if isinstance(one, optuna.distributions.CategoricalDistribution):
        return trial.suggest_categorical(name, one.choices)
    if isinstance(one, optuna.distributions.IntDistribution):
        return trial.suggest_int(name, one.low, one.high, step=one.step, log=one.log)
    if isinstance(one, optuna.distributions.FloatDistribution):
        return trial.suggest_float(name, one.low, one.high, step=one.step, log=one.log)
    raise TypeError(type(one).__name__)
