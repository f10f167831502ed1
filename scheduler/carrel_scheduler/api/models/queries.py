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
    """No parameters."""


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """``dry_run``: tell what would happen and write nothing."""

    dry_run: bool = False


class DeletionFilter(msgspec.Struct, frozen=True, kw_only=True):
    """``children``: also all live work that it submitted, and that those did."""

    children: bool = False


class WorkloadFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which workloads to list.

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
    """Which part of which log.

    ``index`` ``all``: the logs of all tasks as one; ``tail`` counts the lines of each of them.
    """

    follow: bool = False
    tail: Annotated[int, Constraint(ge=0, le=1_000_000)] | None = None
    since: EpochSeconds | None = None
    timestamps: bool = False
    attempt: Annotated[int, Constraint(ge=0, le=2**31)] | None = None
    index: TaskIndex | Literal["all"] = 0


class MetricQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which curves, thinned to how many points each."""

    name: Annotated[list[ShortText], Constraint(max_length=200)] = []
    max_points: Annotated[int, Constraint(ge=2, le=2000)] = 500


class ExecQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to run beside which task; a shell when nothing is said."""

    command: Annotated[list[Text], Constraint(max_length=256)] = []
    index: TaskIndex = 0


class CommandQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What to run beside which task."""

    command: Annotated[list[Text], Constraint(min_length=1, max_length=256)]
    index: TaskIndex = 0


class FilePathQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which file, by its path in its folder."""

    path: FilePath


class FileQuery(FilePathQuery, frozen=True, kw_only=True):
    """Which file of which task; relative to the folder that the task works in."""

    index: TaskIndex = 0


class FileWriteQuery(FileQuery, frozen=True, kw_only=True):
    """Which part of a file: where it begins in bytes, and whether more follows."""

    offset: Annotated[int, Constraint(ge=0, le=2**50)] = 0
    more: bool = False


class ForwardQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which port of which task."""

    port: Annotated[int, Constraint(ge=1, le=65_535)]
    index: TaskIndex = 0


class EventFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which workloads' events; ``routed``: only of those that the gateway has addresses for."""

    project: Name | None = None
    kind: WorkloadKind | None = None
    routed: bool = False


class QueueQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of the queue: at most ``limit`` entries behind the position ``after``."""

    limit: Annotated[int, Constraint(ge=1, le=1000)] | None = None
    after: Annotated[int, Constraint(ge=0, le=10_000_000)] = 0


class GpuUseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Whose GPUs' use: uids of workloads."""

    uid: Annotated[list[ShortText], Constraint(max_length=100)] = []


UsageKey = Literal["department", "project", "user", "workload", "kind", "gpu-type", "node-group"]


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Whose use in which span of time (epoch seconds; the last seven days by default)."""

    by: UsageKey = "project"
    since: EpochSeconds | None = None
    until: EpochSeconds | None = None


class UsageTableQuery(UsageQuery, frozen=True, kw_only=True):
    """``format``: of the file; without it the header Accept says it, else it is CSV."""

    format: Literal["csv", "parquet"] | None = None


class UsageSeriesQuery(UsageQuery, frozen=True, kw_only=True):
    """How use over time is divided, and of whom.

    Attributes:
        buckets: into how many equal parts the span of time is divided.
        largest: only of so many that hold most GPU-hours in it; ``None``: of all.
    """

    buckets: Annotated[int, Constraint(ge=1, le=400)] = 30
    largest: Annotated[int, Constraint(ge=1, le=1000)] | None = None
