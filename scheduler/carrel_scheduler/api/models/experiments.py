"""Requests and answers about experiments and their trials."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec

from carrel_schema.constraints import (
    MOST_METRICS,
    Command,
    Constraint,
    MetricName,
    Name,
    Number,
    ParameterName,
    Text,
)
from carrel_schema.history import Step
from carrel_schema.sections import Parameter

TrialNumber = Annotated[int, Constraint(ge=0, le=100_000)]


class StepValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the metric; without ``step`` it belongs to the step after the last one."""

    step: Step | None = None
    value: Number


class TrialReportIn(msgspec.Struct, frozen=True, kw_only=True):
    """The values of the metric that a trial reports.

    ``asks``: the trial reads the answer, and ends by itself when it is pruned. ``trial``: its
    number, where a worker runs it.
    """

    values: Annotated[list[StepValue], Constraint(max_length=1000)] = []
    result: Number | None = None
    asks: bool = False
    trial: TrialNumber | None = None


class SuggestionIn(Parameter, frozen=True, kw_only=True):
    """A parameter that a running trial defines; ``trial``: see ``TrialReportIn``."""

    name: ParameterName
    trial: TrialNumber | None = None


class EndedTrialIn(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a trial that a worker ran.

    Attributes:
        error: why it failed; empty: it did not.
        seconds: how long it ran.
        log: the end of what it printed.
        values: of the metric, reported since the last report; ``result`` is what counts instead.
        metrics: the last value of everything that it reported, by name.
    """

    trial: TrialNumber
    error: Annotated[Text, Constraint(max_length=4000)] = ""
    seconds: Annotated[float, Constraint(ge=0, le=1e9)] = 0.0
    log: Annotated[Text, Constraint(max_length=4000)] = ""
    values: Annotated[list[StepValue], Constraint(max_length=1000)] = []
    result: Number | None = None
    metrics: Annotated[dict[MetricName, Number], Constraint(max_length=MOST_METRICS)] = {}


class WorkerIn(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's report of ended trials, and the number of trials that it can take.

    Attributes:
        returned: trials that it took and does not run.
    """

    ended: Annotated[list[EndedTrialIn], Constraint(max_length=1000)] = []
    returned: Annotated[list[TrialNumber], Constraint(max_length=1000)] = []
    want: Annotated[int, Constraint(ge=0, le=1000)] = 0


class TakenTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial for a worker to run, with its command and the variables of its environment."""

    trial: int
    command: Sequence[str] = ()
    environment: Mapping[str, str] = {}


class TakenTrials(msgspec.Struct, frozen=True, kw_only=True):
    """The trials for a worker to run now; without any the worker ends."""

    items: Sequence[TakenTrial] = ()


class BestIn(msgspec.Struct, frozen=True, kw_only=True):
    """The kind, name and command of a workload to make from the best trial.

    ``command`` replaces the experiment's own; the parameters are filled into it.
    """

    kind: Literal["training", "inference"] = "training"
    name: Name | None = None
    command: Command | None = None


class StudyLogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The range of entries of a study's log to read."""

    first: Annotated[int, Constraint(ge=0, le=2**53)] = 0
    limit: Annotated[int, Constraint(ge=1, le=10_000)] = 10_000


class TrialLogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The trial whose log is read."""

    trial: TrialNumber


class TrialAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a trial's report: whether it is pruned, and should end."""

    should_prune: bool


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """The value that was chosen for a parameter."""

    value: Any
