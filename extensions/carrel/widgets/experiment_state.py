"""The state of an experiment's view: events and the table of trials in, plain data out. Pure.

The scheduler's table is authoritative, but requested rarely. In between, events of the trials show
how they move; how a trial ended is known from the table only.

*Importance* is the share of the result's variance that a parameter explains alone: results are
ranked (one outlier would be all the variance otherwise), trials are put into a few groups of equal
size along a parameter (or one for each choice), and the share is what lies between the groups'
means, less what chance alone would put there (epsilon squared). Interactions are not seen.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import msgspec

from carrel.models import Event, Workload
from carrel.widgets.job_state import describe
from carrel_schema.answers import TrialOut

STATES: Final = {"pending": "waiting", "succeeded": "completed", "failed": "failed"}
OVER: Final = frozenset({"completed", "pruned", "failed", "stopped"})
COUNTED: Final = ("completed", "running", "waiting", "pruned", "failed", "stopped")


def row_of(part: Workload, metric: str) -> TrialOut | None:
    """The row of a trial, from its workload; ``None`` for one that is no trial but a worker."""
    trial, status = part.spec.trial, part.status
    if trial is None or trial.worker:
        return None
    began, ended = status.first_started_at or status.started_at, status.ended_at
    return TrialOut(
        number=trial.number,
        state=STATES.get(status.phase, "running"),
        parameters=trial.parameters,
        value=status.metrics.get(metric),
        workload=part.name,
        phase=status.phase,
        attempt=status.attempt,
        seconds=None if began is None or ended is None else ended - began,
    )


@dataclass(slots=True)
class ExperimentState:
    """The experiment and its trials by number."""

    workload: Workload
    gone: bool = False
    trials: dict[int, TrialOut] = field(default_factory=dict)

    @property
    def phase(self) -> str:
        """The phase that people see; ``deleted`` once it is removed."""
        return "deleted" if self.gone else self.workload.status.phase

    @property
    def metric(self) -> str:
        """The name of the metric to optimize."""
        spec = self.workload.spec.experiment
        return spec.metric if spec is not None else "objective"

    @property
    def minimize(self) -> bool:
        """Whether small values are good."""
        spec = self.workload.spec.experiment
        return spec is None or spec.direction == "minimize"

    def take(self, event: Event) -> bool:
        """Apply an event of the experiment or of a trial; whether the table has changed."""
        found, before = event.workload, self.workload.status.experiment
        if found.uid == self.workload.uid:
            self.workload, self.gone = found, event.type == "deleted"
            return found.status.experiment != before
        if found.spec.owner != self.workload.uid or event.type == "deleted":
            return False
        row = row_of(found, self.metric)
        if row is None:
            return False
        known = self.trials.get(row.number)
        if known is None or known.state not in OVER:
            self.trials[row.number] = row
            return row.state in OVER
        return False

    def take_trials(self, trials: Iterable[TrialOut]) -> None:
        """Apply the scheduler's table; trials are never removed."""
        self.trials |= {trial.number: trial for trial in trials}

    def concerns(self, event: Event) -> bool:
        """Whether an event is about this experiment."""
        return self.workload.uid in (event.workload.uid, event.workload.spec.owner)

    def in_order(self) -> list[TrialOut]:
        """The trials by number."""
        return [self.trials[number] for number in sorted(self.trials)]

    def best(self) -> TrialOut | None:
        """The completed trial with the best value."""
        done = [one for one in self.in_order() if one.state == "completed"]
        valued = [(one.value, one) for one in done if one.value is not None]
        if not valued:
            return None
        choose = min if self.minimize else max
        return choose(valued, key=lambda pair: pair[0])[1]

    def traits(self) -> dict[str, Any]:
        """Plain data for the page; equal while nothing changed."""
        return {
            "job": {**describe(self.workload, self.phase), "progress": self._progress()},
            "search": self._search(),
            "trials": [_trial(trial) for trial in self.in_order()],
        }

    def _progress(self) -> dict[str, Any] | None:
        spec = self.workload.spec.experiment
        if spec is None:
            return None
        ended = sum(one.state in OVER for one in self.trials.values())
        return {
            "done": ended,
            "total": spec.completions,
            "unit": "trial",
            "rate": None,
            "at": 0.0,
        }

    def _search(self) -> dict[str, Any]:
        spec, best = self.workload.spec.experiment, self.best()
        states = [trial.state for trial in self.trials.values()]
        return {
            "metric": self.metric,
            "minimize": self.minimize,
            "sampler": "" if spec is None else spec.sampler,
            "pruner": "" if spec is None else spec.pruner,
            "completions": 0 if spec is None else spec.completions,
            "parallelism": 0 if spec is None else spec.parallelism,
            "counts": {state: states.count(state) for state in COUNTED},
            "best": None if best is None else _trial(best),
            "logarithmic": []
            if spec is None
            else [name for name, one in spec.parameters.items() if one.log],
            "importance": importance(
                [
                    (trial.parameters, trial.value)
                    for trial in self.in_order()
                    if trial.state == "completed" and trial.value is not None
                ]
            ),
        }


def _trial(trial: TrialOut) -> dict[str, Any]:
    """Plain data for the page; of an error its last line, which says what happened."""
    row: dict[str, Any] = msgspec.to_builtins(trial)
    del row["steps"]
    row["error"] = trial.error.strip().rpartition("\n")[2]
    return row


FEWEST: Final = 8
GROUPS: Final = 4


def importance(trials: Sequence[tuple[Mapping[str, Any], float]]) -> dict[str, float]:
    """The share (0 to 1) of the result's variance that each parameter explains, largest first.

    Args:
        trials: parameters and result of each completed trial.

    Returns:
        Empty with fewer than 8 trials, or when all results are the same.
    """
    if len(trials) < FEWEST:
        return {}
    ranks = _ranks([value for _, value in trials])
    shares: dict[str, float] = {}
    for name in dict.fromkeys(name for parameters, _ in trials for name in parameters):
        known = [(one[name], rank) for (one, _), rank in zip(trials, ranks, strict=True)
                 if name in one]  # fmt: skip
        if len(known) >= FEWEST:
            shares[name] = _explained(_grouped(known))
    if not any(shares.values()):
        return {}
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _ranks(values: Sequence[float]) -> list[float]:
    """Places in order of size; equal values share the mean of theirs."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [sum(places[value]) / len(places[value]) for value in values]


def _grouped(known: Sequence[tuple[Any, float]]) -> list[list[float]]:
    """The results by choice, or by quarters of a number's range in the order of its size."""
    numeric = all(isinstance(value, int | float) and not isinstance(value, bool)
                  for value, _ in known)  # fmt: skip
    if not numeric or len({value for value, _ in known}) <= GROUPS:
        groups: dict[Any, list[float]] = {}
        for value, rank in known:
            groups.setdefault(str(value), []).append(rank)
        return list(groups.values())
    ordered = [rank for _, rank in sorted(known, key=lambda pair: pair[0])]
    size, left = divmod(len(ordered), GROUPS)
    ends = [index * size + min(index, left) for index in range(GROUPS + 1)]
    return [ordered[begin:end] for begin, end in pairwise(ends)]


def _explained(groups: Sequence[Sequence[float]]) -> float:
    """Epsilon squared, 0 where chance explains as much."""
    everything = [value for group in groups for value in group]
    count, kinds = len(everything), len(groups)
    if kinds < 2 or count <= kinds:
        return 0.0
    mean = sum(everything) / count
    total = sum((value - mean) ** 2 for value in everything)
    between = sum(len(group) * (sum(group) / len(group) - mean) ** 2 for group in groups)
    if total == 0:
        return 0.0
    by_chance = (kinds - 1) * (total - between) / (count - kinds)
    return round(max(0.0, (between - by_chance) / total), 3)
