"""What experiments are asked, and what they answer."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from carrel_schema.constraints import Command, Constraint, Name, Number, ParameterName
from carrel_schema.history import Step
from carrel_schema.sections import Parameter


class StepValue(msgspec.Struct, frozen=True, kw_only=True):
    """One value of the metric; without a step it is at the one after the last."""

    step: Step | None = None
    value: Number


class TrialReportIn(msgspec.Struct, frozen=True, kw_only=True):
    """What a trial says of its metric.

    ``asks``: the trial waits for the answer, and ends by itself when it is pruned.
    """

    values: Annotated[list[StepValue], Constraint(max_length=1000)] = []
    result: Number | None = None
    asks: bool = False


class SuggestionIn(Parameter, frozen=True, kw_only=True):
    """A parameter that a trial defines as it runs."""

    name: ParameterName


class BestIn(msgspec.Struct, frozen=True, kw_only=True):
    """What to make of the best trial.

    ``command`` replaces the experiment's own; parameters take their places in it.
    """

    kind: Literal["training", "inference"] = "training"
    name: Name | None = None
    command: Command | None = None


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which entries of a study's log."""

    first: Annotated[int, Constraint(ge=0, le=2**53)] = 0
    limit: Annotated[int, Constraint(ge=1, le=10_000)] = 10_000


class TrialAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the trial is pruned: it should end."""

    should_prune: bool


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a parameter."""

    value: Any


class StudyLog(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a study's log in Optuna's journal format; ``next`` follows the last of them."""

    entries: Sequence[msgspec.Raw]
    next: int
