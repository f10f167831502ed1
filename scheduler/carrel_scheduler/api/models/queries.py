"""Query parameters. They arrive as text; unknown ones are refused like unknown fields."""

from typing import Annotated, Literal

import msgspec

from carrel_scheduler.api.models.workloads import EpochSeconds
from carrel_schema.constraints import NO_NUL, Constraint, Name, ShortText, Text
from carrel_schema.files import FilePath
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Phase

LabelPair = Annotated[str, Constraint(max_length=512, pattern=NO_NUL, form="label_pair")]
UserName = Annotated[ShortText, Constraint(min_length=1)]
TaskIndex = Annotated[int, Constraint(ge=0, le=10_000)]


class NoQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The query of operations without parameters."""


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a change is only tried: ``dry_run`` answers its effect and writes nothing."""

    dry_run: bool = False


class DeletionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a deletion includes ``children``: live work that it submitted, and theirs."""

    children: bool = False


class WorkloadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions for workloads in a list.

    Parts of composite work (trials, replicas) come only when asked for: by ``parts``, by their
    kind, or by a label. ``search`` stands in their name or in their user's.
    """

    project: Name | None = None
    user: UserName | None = None
    phase: Annotated[list[Phase], Constraint(max_length=8)] = []
    kind: WorkloadKind | None = None
    parts: bool = False
    search: Annotated[str, Constraint(max_length=63, pattern=NO_NUL)] = ""
    order: Literal["created", "newest"] = "created"
    label: Annotated[list[LabelPair], Constraint(max_length=16)] = []
    limit: Annotated[int, Constraint(ge=1, le=500)] = 100
    after: Annotated[str, Constraint(max_length=200, pattern=r"^[-_.:=+/A-Za-z0-9]*$")] = ""


class LogQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The task and the part of its log to read.

    ``index`` ``all``: the logs of all tasks as one; ``tail`` counts the lines of each of them.
    """

    follow: bool = False
    tail: Annotated[int, Constraint(ge=0, le=1_000_000)] | None = None
    since: EpochSeconds | None = None
    timestamps: bool = False
    attempt: Annotated[int, Constraint(ge=0, le=2**31)] | None = None
    index: TaskIndex | Literal["all"] = 0


class MetricQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The curves to read, and the most points of each."""

    name: Annotated[list[ShortText], Constraint(max_length=200)] = []
    max_points: Annotated[int, Constraint(ge=2, le=2000)] = 500


class ExecQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The command to run next to a task; a shell by default."""

    command: Annotated[list[Text], Constraint(max_length=256)] = []
    index: TaskIndex = 0


class CommandQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The command to run next to a task."""

    command: Annotated[list[Text], Constraint(min_length=1, max_length=256)]
    index: TaskIndex = 0


class FilePathQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The file to read, by its path in its folder."""

    path: FilePath


class FileQuery(FilePathQuery, frozen=True, kw_only=True):
    """The task and the path of a file; relative to the task's working folder."""

    index: TaskIndex = 0


class FileWriteQuery(FileQuery, frozen=True, kw_only=True):
    """The part of a file to write: where it begins in bytes, and whether more follows."""

    offset: Annotated[int, Constraint(ge=0, le=2**50)] = 0
    more: bool = False


class ForwardQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The task and the port to connect to."""

    port: Annotated[int, Constraint(ge=1, le=65_535)]
    index: TaskIndex = 0


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The workloads whose events are streamed; ``routed``: those that the gateway serves."""

    project: Name | None = None
    kind: WorkloadKind | None = None
    routed: bool = False


class QueueQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The part of the queue to read: at most ``limit`` entries behind the position ``after``."""

    limit: Annotated[int, Constraint(ge=1, le=1000)] | None = None
    after: Annotated[int, Constraint(ge=0, le=10_000_000)] = 0


class GpuUseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The workloads whose GPU use is read, by uid."""

    uid: Annotated[list[ShortText], Constraint(max_length=100)] = []


UsageKey = Literal["department", "project", "user", "workload", "kind", "gpu-type", "node-group"]


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The grouping and the span of a usage report (epoch seconds; by default seven days)."""

    by: UsageKey = "project"
    since: EpochSeconds | None = None
    until: EpochSeconds | None = None


class UsageTableQuery(UsageQuery, frozen=True, kw_only=True):
    """The ``format`` of a usage file; by default that of the header Accept, else CSV."""

    format: Literal["csv", "parquet"] | None = None


class UsageSeriesQuery(UsageQuery, frozen=True, kw_only=True):
    """The division of use over time, and the lines that it has.

    Attributes:
        buckets: the number of equal parts that the span of time is divided into.
        largest: the number of lines, those with most GPU-hours; ``None``: all.
    """

    buckets: Annotated[int, Constraint(ge=1, le=400)] = 30
    largest: Annotated[int, Constraint(ge=1, le=1000)] | None = None
