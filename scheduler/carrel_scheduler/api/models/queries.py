"""Query parameters. They arrive as text; unknown ones are refused like unknown fields."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from carrel_scheduler.api.models import fields
from carrel_scheduler.api.models.fields import Query, refuse
from carrel_scheduler.api.problems import Code
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Phase


def _pair(value: str) -> str:
    if not value.partition("=")[1]:
        refuse(Code.BAD_LABEL, "a label as `key=value`")
    return value


LabelPair = Annotated[fields.ShortText, AfterValidator(_pair)]
UserName = Annotated[fields.ShortText, Field(min_length=1)]


class NoQuery(Query):
    """No parameters."""


class DryRun(Query):
    """``dry_run``: tell what would happen and write nothing."""

    dry_run: bool = False


class WorkloadFilter(Query):
    """Which workloads to list.

    Parts of composite work (trials, replicas) come only when asked for: by ``parts``, by their
    kind, or by a label.
    """

    project: fields.Name | None = None
    user: UserName | None = None
    phase: Annotated[list[Phase], Field(max_length=8)] = Field(default_factory=list)
    kind: WorkloadKind | None = None
    parts: bool = False
    label: Annotated[list[LabelPair], Field(max_length=16)] = Field(default_factory=list)
    limit: Annotated[int, Field(ge=1, le=500)] = 100
    after: Annotated[
        str, fields.StringConstraints(max_length=200, pattern=r"^[-_.:=+/A-Za-z0-9]*$")
    ] = ""


class LogQuery(Query):
    """Which part of which log.

    ``index`` ``all``: the logs of all tasks as one; ``tail`` counts the lines of each of them.
    """

    follow: bool = False
    tail: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    since: fields.EpochSeconds | None = None
    timestamps: bool = False
    attempt: Annotated[int, Field(ge=0, le=2**31)] | None = None
    index: Annotated[int, Field(ge=0, le=10_000)] | Literal["all"] = 0


class MetricQuery(Query):
    """Which curves, thinned to how many points each."""

    name: Annotated[list[fields.ShortText], Field(max_length=200)] = Field(default_factory=list)
    max_points: Annotated[int, Field(ge=2, le=2000)] = 500


class ExecQuery(Query):
    """What to run beside which task; a shell when nothing is said."""

    command: Annotated[list[fields.Text], Field(max_length=256)] = Field(default_factory=list)
    index: Annotated[int, Field(ge=0, le=10_000)] = 0


class EventFilter(Query):
    """Which workloads' events; ``routed``: only of those that the gateway has addresses for."""

    project: fields.Name | None = None
    kind: WorkloadKind | None = None
    routed: bool = False


class UsageQuery(Query):
    """Whose use in which span of time (epoch seconds; the last seven days by default)."""

    by: Literal["project", "user", "workload"] = "project"
    since: fields.EpochSeconds | None = None
    until: fields.EpochSeconds | None = None
