"""What an experiment's view knows: workloads in, plain data for the page out. Pure.

A trial is a workload that the experiment owns; how it did is what it reported last.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from carrel.models import Event, Workload
from carrel.widgets.importance import importance
from carrel.widgets.story import describe

STATES: Final = {
    "pending": "waiting",
    "starting": "waiting",
    "running": "running",
    "preempting": "running",
    "stopping": "running",
    "succeeded": "completed",
    "failed": "failed",
    "stopped": "pruned",
}


@dataclass(frozen=True, slots=True)
class Trial:
    """One configuration. ``state``: waiting, running, completed, pruned or failed."""

    number: int
    name: str = ""
    state: str = "waiting"
    value: float | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seconds: float | None = None

    def row(self) -> dict[str, Any]:
        """Plain data for the page."""
        return {
            "number": self.number,
            "name": self.name,
            "state": self.state,
            "value": self.value,
            "parameters": dict(self.parameters),
            "seconds": self.seconds,
        }


def trial_of(part: Workload, metric: str) -> Trial | None:
    """The trial that a workload is; ``None`` for one that is none."""
    told, status = part.spec.trial, part.status
    if told is None:
        return None
    ran = status.first_started_at or status.started_at
    return Trial(
        number=told.number,
        name=part.name,
        state=STATES.get(status.phase, status.phase),
        value=status.metrics.get(metric),
        parameters=told.parameters,
        seconds=None if ran is None or status.ended_at is None else status.ended_at - ran,
    )


@dataclass(slots=True)
class Search:
    """One experiment so far."""

    workload: Workload
    gone: bool = False
    trials: dict[int, Trial] = field(default_factory=dict)

    @property
    def phase(self) -> str:
        """The phase that people see; ``deleted`` once it is removed."""
        return "deleted" if self.gone else self.workload.status.phase

    @property
    def metric(self) -> str:
        """The reported value that counts."""
        spec = self.workload.spec.experiment
        return spec.metric if spec is not None else "objective"

    @property
    def minimize(self) -> bool:
        """Whether small values are good."""
        spec = self.workload.spec.experiment
        return spec is None or spec.direction == "minimize"

    def take(self, event: Event) -> None:
        """An event of the experiment or of one of its trials; of others nothing changes."""
        found = event.workload
        if found.uid == self.workload.uid:
            self.workload, self.gone = found, event.type == "deleted"
        elif found.spec.owner == self.workload.uid and event.type != "deleted":
            trial = trial_of(found, self.metric)
            if trial is not None:
                self.trials[trial.number] = trial

    def take_trials(self, trials: Iterable[Trial]) -> None:
        """The trials up to now, as the scheduler keeps them."""
        self.trials = {trial.number: trial for trial in trials}

    def in_order(self) -> list[Trial]:
        """By number."""
        return [self.trials[number] for number in sorted(self.trials)]

    def best(self) -> Trial | None:
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
            "trials": [trial.row() for trial in self.in_order()],
        }

    def _progress(self) -> dict[str, Any] | None:
        spec = self.workload.spec.experiment
        if spec is None:
            return None
        ended = sum(one.state in ("completed", "pruned", "failed") for one in self.trials.values())
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
            "counts": {
                state: states.count(state)
                for state in ("completed", "running", "waiting", "pruned", "failed")
            },
            "best": None if best is None else best.row(),
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
