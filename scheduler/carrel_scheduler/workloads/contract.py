"""The scheduler's interface to the API, beyond reading and writing objects.

The API writes specifications to the ledger; everything that lives in the scheduler's memory (who
holds which device now, the order of the queue, what a new workload would meet) is asked here.
Amounts: GPU thousandths, millicores, bytes. Times: epoch seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from carrel_scheduler.engines.external import PodCounts
from carrel_scheduler.quarantine import Skipped, Source
from carrel_schema.answers import EffectiveProjectRule, NodeView, ProjectImpact
from carrel_schema.history import GpuUsePoint, Report
from carrel_schema.objects import (
    Department,
    Limits,
    ReasonInfo,
    Resources,
    Workload,
)
from carrel_schema.wire import Remedy


class QueueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting workload, in the order of service. ``color``: see ``DeviceHolder``."""

    position: int
    uid: str
    name: str
    project: str
    user: str
    kind: str
    resources: Resources
    tasks: int
    waits_since: float
    reason: ReasonInfo | None
    color: int | None = None


class ProjectUse(msgspec.Struct, frozen=True, kw_only=True):
    """A project's quota line now, and the rules that it may have from elsewhere, by field.

    ``fair_share_gpu_milli`` is that of the last cycle.
    """

    name: str
    gpu_allocated_milli: int
    gpu_borrowed_milli: int
    gpu_waiting_milli: int
    cpu_allocated_milli: int
    memory_allocated_bytes: int
    fair_share_gpu_milli: int
    running: int
    waiting: int
    rules: Mapping[str, EffectiveProjectRule] = {}


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """The activity in a workspace, as seen from inside it.

    Attributes:
        busy_since: since when a kernel has been executing somebody's request without a break;
            ``None`` when none does.
        last_input_at: the latest execute request, terminal keystroke or save; 0 when none yet.
    """

    at: float
    busy_since: float | None = None
    last_input_at: float = 0.0
    kernels: int = 0
    terminals: int = 0


class LiveEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the event stream: ``workload``, ``deleted`` or ``report``."""

    type: str
    version: int
    workload: Workload
    report: Report | None = None


class NotAccepted(Exception):  # noqa: N818
    """A request that the present state refuses; ``code`` is the stable code of the problem."""

    def __init__(self, code: str, detail: str, field: str = "") -> None:
        super().__init__(detail)
        self.code, self.detail, self.field = code, detail, field


class GpuUseSeries(msgspec.Struct, frozen=True, kw_only=True):
    """A series of GPU use of a workload, oldest first; empty while nothing was measured."""

    project: str
    points: Sequence[GpuUsePoint]


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs that are set aside, and violated invariants.

    Attributes:
        set_aside: inputs that could not be processed.
        skipped: how often that happened since the start, by source and reason.
        violated: names of invariants that the last looks found violated.
        violations: how many looks found an invariant violated since the start, by its name.
    """

    set_aside: Sequence[Skipped] = ()
    skipped: Mapping[tuple[Source, str], int] = {}
    violated: Sequence[str] = ()
    violations: Mapping[str, int] = {}


class UnsupportedField(msgspec.Struct, frozen=True):
    """The error for a field whose value this installation cannot serve.

    Attributes:
        code: a stable word of the API's.
        field: with the path of the API, as ``volumes.0.source``.
        value: of that field.
        expected: what would be right.
    """

    code: str
    field: str
    value: Any
    expected: str


class Live(Protocol):
    """The running scheduler."""

    def faults(self) -> Faults:
        """Inputs that are set aside, and violated invariants."""
        ...

    def nodes(self) -> Sequence[NodeView]:
        """All nodes and devices."""
        ...

    def mig_model(self) -> str:
        """The GPU model that is divided into MIG instances on demand; empty without one."""
        ...

    def only_instances(self) -> bool:
        """Whether no node gives out whole GPUs: all of a cluster are divided, of one model."""
        ...

    def gpu_use(self, uid: str) -> GpuUseSeries | None:
        """The measured GPU use of a workload; ``None`` for an unknown workload."""
        ...

    def uncordon(self, node: str, index: int) -> bool:
        """Return a cordoned device to service; returns whether health checks had cordoned it."""
        ...

    def queue(self) -> Sequence[QueueEntry]:
        """All waiting workloads in the order of service."""
        ...

    def positions(self) -> Mapping[str, int]:
        """Places in the queue by uid, from 1, as of the last decision."""
        ...

    def pods(self) -> PodCounts | None:
        """External and unmanaged pods; ``None`` on one machine."""
        ...

    def project_use(self, name: str = "") -> Mapping[str, ProjectUse]:
        """Quota lines by project; of one of them, if it is there, by its name."""
        ...

    def never(self, workload: Workload) -> ReasonInfo | None:
        """The reason why no node or quota can ever admit the workload; else ``None``."""
        ...

    def unsupported_field(self, workload: Workload, /) -> UnsupportedField | None:
        """The error of a workload that can never run here; see ``launch.fitting``."""
        ...

    def forecast(self, workload: Workload) -> ReasonInfo:
        """The answer of a dry run: ``Starting``, or the reason for which work would wait."""
        ...

    def remedies(self, uid: str) -> Sequence[Remedy]:
        """The changes that would unblock a waiting workload, with all names; each is tried.

        Each costs a decision, up to six in all. Empty for what does not ask for capacity now, or
        starts anyway.
        """
        ...

    def preview_project(self, name: str, spec_json: bytes) -> ProjectImpact:
        """The changes that a project with this ``ProjectSpec`` (JSON) would make now."""
        ...

    def preview_projects(self, specs_json: Mapping[str, bytes]) -> ProjectImpact:
        """The changes that several projects, by name, would make now together."""
        ...

    def preview_department(self, department: Department) -> ProjectImpact:
        """The changes that a department with these rules would make now."""
        ...

    async def report(self, workload_uid: str, report: Report) -> None:
        """Take a job's report. Raises ``ObjectNotFound``."""
        ...

    async def activity(self, user: str, server_name: str, activity: Activity) -> Limits:
        """Record a workspace's activity; returns the limits that apply soon.

        Raises ``ObjectNotFound`` when the user has no such running workspace.
        """
        ...

    def visited(self, workload_uid: str, at: float | None) -> None:
        """Record when a workload's routes were last visited; unknown ones are ignored."""
        ...

    async def extend(self, workload_uid: str) -> Limits:
        """Keep a workspace for the project's extension.

        Raises ``NotAccepted``, ``ObjectNotFound``.
        """
        ...

    async def claim(
        self,
        workload_uid: str,
        *,
        command: Sequence[str],
        environment: Mapping[str, str],
        secret_environment: Mapping[str, str],
        working_dir: str,
        port: int | None,
        external: bool = False,
    ) -> Workload:
        """Give an allocated workspace the command that it runs.

        Raises ``ObjectNotFound``; ``NotAccepted`` when it does not hold a place.
        """
        ...

    def events(self) -> "Subscription":
        """Subscribe to the event stream from now on."""
        ...


class Subscription(Protocol):
    """An event stream of one listener; bounded: a slow one loses its stream, not the server."""

    async def next(self) -> LiveEvent | None:
        """The next event; ``None`` when the listener was too slow or the service stops."""
        ...

    def close(self) -> None:
        """Unsubscribe."""
        ...
