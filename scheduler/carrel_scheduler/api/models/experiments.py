"""What experiments are asked, and what they answer."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from carrel_scheduler.api.models import fields
from carrel_scheduler.api.models.fields import Query, Request
from carrel_scheduler.api.models.sections import ParameterIn, ParameterName


class StepValue(Request):
    """One value of the metric; without a step it is at the one after the last."""

    step: fields.Step | None = None
    value: fields.Number


class TrialReportIn(Request):
    """What a trial says of its metric.

    ``asks``: the trial waits for the answer, and ends by itself when it is pruned.
    """

    values: Annotated[list[StepValue], Field(max_length=1000)] = Field(default_factory=list)
    result: fields.Number | None = None
    asks: bool = False


class SuggestionIn(ParameterIn):
    """A parameter that a trial defines as it runs."""

    name: ParameterName


class BestIn(Request):
    """What to make of the best trial.

    ``command`` replaces the experiment's own; parameters take their places in it.
    """

    kind: Literal["training", "inference"] = "training"
    name: fields.Name | None = None
    command: fields.Command | None = None


class LogQuery(Query):
    """Which entries of a study's log."""

    first: Annotated[int, Field(ge=0, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000


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
