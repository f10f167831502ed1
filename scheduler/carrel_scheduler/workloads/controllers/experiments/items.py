"""The items of a map as a study: trials without parameters, of which nothing is searched.

Its log is made of lines of JSON, each with the trials that one commit changed; ten thousand items
in batches are a few hundred lines.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec
from typing_extensions import override

from carrel_scheduler.workloads.controllers.experiments.contract import (
    BadSuggestion,
    Ended,
    StoredStudy,
    StudyState,
    StudyTrial,
    WorkerRun,
)
from carrel_schema.sections import ExperimentSpec, Parameter

_DECODER: Final = msgspec.json.Decoder(list[StudyTrial])


class ItemStudy(StoredStudy):
    """See ``contract.Study``.

    Args:
        spec: says how many items there are.
        entries: the stored log.
    """

    def __init__(self, spec: ExperimentSpec, entries: Sequence[str]) -> None:
        self._spec = spec
        self._trials: dict[int, StudyTrial] = {}
        self._open: dict[int, StudyTrial] = {}
        self._counts = {"completed": 0, "failed": 0, "stopped": 0}
        self._last_error = ""
        self._changed: dict[int, StudyTrial] = {}
        for entry in entries:
            for trial in _DECODER.decode(entry):
                self._note(trial)

    @override
    def take_pending(self) -> Sequence[str]:
        """Remove and return the entries that are to be stored."""
        changed, self._changed = list(self._changed.values()), {}
        return [msgspec.json.encode(changed).decode()] if changed else []

    @override
    def standing(self) -> StudyState:
        """See ``Study``."""
        return StudyState(
            open={number: {} for number in self._open},
            made=len(self._trials),
            completed=self._counts["completed"],
            failed=self._counts["failed"],
            exhausted=len(self._trials) >= self._spec.completions,
            last_error=self._last_error,
            in_workers={number: one.run or WorkerRun() for number, one in self._open.items()},
        )

    @override
    def ask(self) -> bool:
        """See ``Study``."""
        number = len(self._trials)
        if number >= self._spec.completions:
            return False
        self._change(StudyTrial(number=number, state="open", run=WorkerRun()))
        return True

    @override
    def assign(self, number: int, run: WorkerRun | None) -> StudyTrial:
        """See ``Study``."""
        return self._change(msgspec.structs.replace(self._trials[number], run=run))

    @override
    def trial(self, number: int) -> StudyTrial | None:
        """See ``Study``."""
        return self._trials.get(number)

    @override
    def tell(self, ended: Ended) -> None:
        """See ``Study``."""
        trial = self._open.get(ended.number)
        if trial is None:
            return
        self._change(
            msgspec.structs.replace(
                trial, state=ended.state, error=ended.error, run=ended.run or trial.run
            )
        )

    @override
    def trials(self) -> list[StudyTrial]:
        """See ``Study``."""
        return [self._trials[number] for number in sorted(self._trials)]

    @override
    def report(self, number: int, values: Sequence[tuple[int | None, float]]) -> None:
        """See ``Study``: no effect, an item has no metric to judge."""

    @override
    def result(self, number: int, value: float) -> None:
        """See ``Study``: no effect, an item's result goes to the caller of ``map``."""

    @override
    def pruned(self, number: int) -> bool:
        """See ``Study``: never true for an item."""
        return False

    @override
    def leave(self, number: int, until: float, *, asks: bool) -> bool:
        """See ``Study``."""
        return False

    @override
    def suggest(self, number: int, name: str, parameter: Parameter) -> Any:
        """See ``Study``."""
        raise BadSuggestion("an item of a map has no parameters")

    def _change(self, trial: StudyTrial) -> StudyTrial:
        self._changed[trial.number] = trial
        self._note(trial)
        return trial

    def _note(self, trial: StudyTrial) -> None:
        self._trials[trial.number] = trial
        if trial.state == "open":
            self._open[trial.number] = trial
        else:
            self._open.pop(trial.number, None)
            self._counts[trial.state] += 1
        if trial.state == "failed":
            self._last_error = trial.error
