"""What clients read about workloads beside themselves: pages, forecasts, events, history."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from carrel_schema.answers import ProjectOut
from carrel_schema.objects import ReasonInfo
from carrel_schema.wire import WorkloadOut


class WorkloadPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list; ``next`` is the ``after`` of the following page."""

    items: list[WorkloadOut] = []
    next: str | None = None


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a dry run: the workload as it would be, and what it would meet."""

    workload: WorkloadOut | None = None
    forecast: ReasonInfo = ReasonInfo(token="")


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a job said about itself."""

    at: float | None = None
    step: int | None = None
    metrics: dict[str, float] = {}
    parameters: dict[str, Any] = {}
    done: float | None = None
    total: float | None = None
    unit: str = "step"
    rate: float | None = None
    checkpoint_step: int | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the event stream. ``type``: ``workload``, ``deleted`` or ``report``."""

    type: str
    id: str = ""
    workload: WorkloadOut
    report: Report | None = None


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a workload's phase, with what it held from then on."""

    at: float
    from_phase: str = ""
    to_phase: str = ""
    attempt: int = 0
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    borrowed: bool = False
    node: str = ""
    devices: tuple[int, ...] = ()
    reason: ReasonInfo | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of the scheduler about a workload.

    ``action`` is ``bind``, ``evict``, ``nominate``, ``stop`` or ``refuse``.
    """

    at: float
    action: str = ""
    cycle: int = 0
    node: str = ""
    devices: tuple[int, ...] = ()
    reason: ReasonInfo | None = None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A workload's past, oldest first."""

    transitions: list[Transition] = []
    decisions: list[Decision] = []


class MetricPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One reported value of a curve."""

    at: float
    step: int = 0
    value: float


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Use of a project, user or workload (``key``) in a span of time.

    ``gpu_seconds`` are allocated ones; used and idle ones are those that were measured.
    """

    key: str
    gpu_seconds: float = 0.0
    borrowed_gpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_byte_seconds: float = 0.0
    wait_seconds: float = 0.0
    preemptions: int = 0
    workloads: int = 0
    gpu_used_seconds: float = 0.0
    gpu_idle_seconds: float = 0.0


class StudyLog(msgspec.Struct, frozen=True, kw_only=True):
    """Entries of a study's log; ``next`` follows the last of them."""

    entries: list[dict[str, Any]] = []
    next: int = 0


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Why one was refused: a stable code, a sentence, and the fields that are wrong."""

    code: str = ""
    detail: str = ""
    errors: Sequence[Mapping[str, Any]] = ()


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to one of many. ``status`` is what it would have been answered with alone.

    One that the caller had submitted just so before counts as accepted; it is not created again.
    """

    project: str
    name: str
    status: int
    uid: str | None = None
    resource_version: int | None = None
    problem: Problem | None = None

    @property
    def created(self) -> bool:
        """Whether this request created it."""
        return self.status == 201

    @property
    def accepted(self) -> bool:
        """Whether it is there now, as asked for."""
        return self.problem is None


class BatchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answers to one batch, in its order."""

    items: Sequence[Submitted]


def by_department(projects: Iterable[ProjectOut]) -> list[tuple[str, list[ProjectOut]]]:
    """Projects under their departments, both by name; those of none come last, under ``""``."""
    found: dict[str, list[ProjectOut]] = {}
    for project in sorted(projects, key=lambda project: project.name):
        found.setdefault(project.department or "", []).append(project)
    return sorted(found.items(), key=lambda group: (not group[0], group[0]))
