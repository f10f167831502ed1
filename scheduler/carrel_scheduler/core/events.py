"""What the outside tells the core. Each event is a fact that has already happened.

Times are seconds since the epoch, given by the caller. Names and ids are plain strings; ``uid``
identifies a workload for ever, a task is (uid, index).
"""

from dataclasses import dataclass, field

from carrel_scheduler.core.resources import OPEN, Amounts


@dataclass(frozen=True, slots=True)
class NodeSet:
    """A node appeared or changed. ``devices`` is its number of GPUs (at most 64)."""

    name: str
    devices: int
    cpu_milli: int
    memory_mib: int
    schedulable: bool = True
    broken_devices: frozenset[int] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class NodeGone:
    """A node left; its tasks are reported by ``TaskReleased`` beforehand."""

    name: str


@dataclass(frozen=True, slots=True)
class ProjectSet:
    """A project appeared or its rules changed.

    Attributes:
        quota: guaranteed amounts; ``UNLIMITED`` per resource means all of the cluster.
        limit: never more than this, also of idle resources; ``UNLIMITED`` means open.
        weight: share of the surplus; ``None`` means in proportion to the GPU quota.
        rank: served strictly first out of the surplus when higher.
        over_quota: whether preemptible work may borrow idle resources beyond the quota.
        created_at: ties go to the older project.
    """

    name: str
    quota: Amounts
    limit: Amounts = OPEN
    weight: int | None = None
    rank: int = 0
    over_quota: bool = True
    created_at: float = 0.0


@dataclass(frozen=True, slots=True)
class ProjectGone:
    """A project was deleted; it has no workloads any more."""

    name: str


@dataclass(frozen=True, slots=True)
class WorkloadQueued:
    """A workload waits for room (submitted, resumed, or returned after an eviction).

    Attributes:
        priority: larger is served first inside the project (see ``core.priorities``).
        request: of one task.
        tasks: all of them start together.
        created_at: the submission, kept over evictions, so that it keeps its place.
        nodes: when given, only these nodes may be used.
    """

    uid: str
    name: str
    project: str
    user: str
    priority: int
    preemptible: bool
    request: Amounts
    tasks: int = 1
    created_at: float = 0.0
    nodes: frozenset[str] | None = None
    interactive: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadGone:
    """A workload wants nothing any more and holds nothing (ended, deleted, suspended)."""

    uid: str


@dataclass(frozen=True, slots=True)
class TaskPlaced:
    """A task got a place: a binding of a plan that was recorded, or one found at start-up.

    ``devices`` are device indices on the node; ``at`` is when it started, for minimum run times and
    the order of victims.
    """

    uid: str
    index: int
    node: str
    devices: tuple[int, ...]
    at: float


@dataclass(frozen=True, slots=True)
class TaskReleasing:
    """A placed task was told to stop; it holds its room until ``TaskReleased``."""

    uid: str
    index: int


@dataclass(frozen=True, slots=True)
class TaskReleased:
    """A task's room is free. The workload is not queued again by this: say ``WorkloadQueued``."""

    uid: str
    index: int


@dataclass(frozen=True, slots=True)
class CheckpointSeen:
    """A workload saved its work at ``at``; evicting it now loses what came after."""

    uid: str
    at: float


@dataclass(frozen=True, slots=True)
class RoomPromised:
    """Room being freed is held for a waiting workload until it is placed or gone.

    Follows from a plan's nomination; survives cycles, so nobody slips in between.
    """

    uid: str
    places: tuple[tuple[str, tuple[int, ...]], ...] = field(default=())


Event = (
    NodeSet
    | NodeGone
    | ProjectSet
    | ProjectGone
    | WorkloadQueued
    | WorkloadGone
    | TaskPlaced
    | TaskReleasing
    | TaskReleased
    | CheckpointSeen
    | RoomPromised
)
