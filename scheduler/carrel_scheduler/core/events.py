"""Events of the core: facts that have already happened.

Times are seconds since the epoch, given by the caller. Names and ids are plain strings; ``uid``
identifies a workload for ever, a task is (uid, index).
"""

from dataclasses import dataclass
from enum import StrEnum

from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.requests import NOTHING, Request
from carrel_scheduler.core.resources import OPEN, ResourceVector

Devices = tuple[int, ...]
Place = tuple[str, Devices, int]
"""Node, device indices, and the memory slots of a MIG instance as bits (0 for any other task)."""


class Preemptibility(StrEnum):
    """Whether a workload may be evicted for others: wholly, never, or only its surplus tasks."""

    YES = "preemptible"
    NO = "non-preemptible"
    SURPLUS = "semi-preemptible"
    """The minimum is protected and counts as non-preemptible; members beyond it are not."""


class Outcome(StrEnum):
    """The end of a task."""

    AGAIN = "again"
    """The task was evicted or lost and is queued again."""
    GONE = "gone"
    """The task does not run again by itself; ``WorkloadQueued`` may queue the workload anew."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Link:
    """The distance between two devices of a node; a smaller ``hops`` is better.

    By convention 0 NVLink or NVSwitch, 1 one PCIe switch, 2 one host bridge, 3 across sockets.
    Pairs that are not named count as 3.
    """

    first: int
    second: int
    hops: int


@dataclass(frozen=True, slots=True)
class NodeSet:
    """A node appeared or changed.

    Attributes:
        devices: its number of GPUs, at most 64.
        gpu_memory_mib: memory of each of them; 0 when unknown.
        mig_model: the GPU model whose MIG instances the core may create and remove on this node
            (see ``mig``); empty where the geometry is fixed. Shares of GPUs are then not used here.
        extended: countable resources by name.
        counted_milli: thousandths of GPUs that these are together, beside the devices.
        taints: ``key`` or ``key=value``; keep away tasks that do not tolerate them.
        draining: nothing new starts here and what may be moved is moved away.
        links: pairs of well connected devices.
        types: of each device, where they are unlike; empty: one is as good as another.
        undivided: devices without MIG on a node with a ``mig_model``: only whole ones are given.
        instances_only: whole devices are not given out here, only MIG instances.
        profiles: of the MIG instances that are to be had here.
        divided: some of its GPUs are not given as a whole, since they are divided into such.
    """

    name: str
    devices: int
    cpu_milli: int
    memory_mib: int
    schedulable: bool = True
    broken_devices: frozenset[int] = frozenset()
    labels: tuple[tuple[str, str], ...] = ()
    gpu_memory_mib: int = 0
    mig_model: str = ""
    extended: tuple[tuple[str, int], ...] = ()
    taints: frozenset[str] = frozenset()
    draining: bool = False
    links: tuple[Link, ...] = ()
    counted_milli: int = 0
    types: tuple[str, ...] = ()
    undivided: frozenset[int] = frozenset()
    instances_only: bool = False
    profiles: tuple[str, ...] = ()
    divided: bool = False


@dataclass(frozen=True, slots=True)
class NodeRemoved:
    """A node was removed; its tasks are reported by ``TaskReleased`` beforehand."""

    name: str


@dataclass(frozen=True, slots=True)
class TopologySet:
    """The levels of a topology: keys of node labels, from coarse to fine."""

    name: str
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class QueueSet:
    """A queue appeared or its rules changed: a department, a project, or a user's part of one.

    Attributes:
        parent: the queue above; empty at the top. Only queues without children hold workloads.
        quota: guaranteed amounts; ``UNLIMITED`` per resource means all of the parent's.
        limit: never more than this, also of idle resources; ``UNLIMITED`` means open.
        weight: shares of the surplus of GPUs, CPU and memory, thousandths; ``None`` means in
            proportion to the quota of the resource (unlimited: to the cluster's amount).
        rank: served strictly first out of the surplus when higher.
        over_quota: whether preemptible work may borrow idle resources beyond the quota.
        created_at: ties go to the older queue.
        preempt_min_runtime_s, reclaim_min_runtime_s: a workload is not evicted for its own
            queue's, or for another queue's, work before it has run so long; ``None`` asks the
            queue above.
        reservation_delay_s: see the settings; ``None`` asks the queue above, then the settings.
        group_limits: groups of nodes and the most GPUs, in thousandths, that it holds on theirs.
        group_quotas: groups of nodes and the GPUs, in thousandths, guaranteed to it on theirs.
        fair_users: of its waiting work of equal priority that of the user goes first who holds
            least in it.
    """

    name: str
    quota: ResourceVector
    limit: ResourceVector = OPEN
    weight: tuple[int, int, int] | None = None
    rank: int = 0
    over_quota: bool = True
    created_at: float = 0.0
    parent: str = ""
    preempt_min_runtime_s: float | None = None
    reclaim_min_runtime_s: float | None = None
    reservation_delay_s: float | None = None
    group_limits: tuple[tuple[str, int], ...] = ()
    group_quotas: tuple[tuple[str, int], ...] = ()
    fair_users: bool = False


@dataclass(frozen=True, slots=True)
class QueueRemoved:
    """A queue was deleted; it has neither children nor workloads any more."""

    name: str


@dataclass(frozen=True, slots=True)
class UsageSeen:
    """Past use of a queue in the window of time-based fair share.

    ``part`` is its use over the cluster's capacity in millionths, for GPU, CPU and memory, decayed
    as the edge is configured.
    """

    queue: str
    part: tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class WorkloadQueued:
    """A workload waits for capacity (submitted, resumed, or returned after an eviction).

    Attributes:
        priority: larger is served first inside the project (see ``priorities``).
        request: of one task, when all ``tasks`` are alike and start together.
        gang: the structure of any other workload; ``request`` and ``tasks`` are then not looked at.
        created_at: the submission, kept over evictions, so that it keeps its place.
        evicted_at: the last eviction.
        preemption_delay_s: nobody is evicted for it before this time has passed since its
            submission or last eviction.
        stale_grace_s: how long it may run with fewer tasks than its minimum; negative: for ever;
            ``None``: as the settings say.
        gated: indices of tasks that may not start yet.
        moves_to_preferred: while it runs it is moved to nodes that satisfy more of what it prefers,
            once they have capacity for all of it.
    """

    uid: str
    name: str
    project: str
    user: str
    priority: int
    preemptible: Preemptibility
    request: Request = NOTHING
    tasks: int = 1
    created_at: float = 0.0
    interactive: bool = False
    gang: Group | None = None
    evicted_at: float | None = None
    preemption_delay_s: float = 0.0
    stale_grace_s: float | None = None
    gated: frozenset[int] = frozenset()
    moves_to_preferred: bool = False


@dataclass(frozen=True, slots=True)
class WorkloadRemoved:
    """A workload ended, was deleted or suspended: it asks for nothing and holds nothing."""

    uid: str


@dataclass(frozen=True, slots=True)
class TaskPlaced:
    """A task got a place: a binding of a plan that was recorded, or one found at start-up.

    ``devices`` are device indices on the node, ``slots`` the bits of a MIG instance; ``at`` is
    when it started, for minimum run times and the order of victims.
    """

    uid: str
    index: int
    node: str
    devices: Devices
    at: float
    slots: int = 0


@dataclass(frozen=True, slots=True)
class TaskReleasing:
    """A placed task is terminating; it holds its allocation until ``TaskReleased``."""

    uid: str
    index: int


@dataclass(frozen=True, slots=True)
class TaskStuck:
    """A task does not end although told to: it holds its place and is not expected to free it."""

    uid: str
    index: int


@dataclass(frozen=True, slots=True)
class TaskReleased:
    """A task's capacity is free, since ``at``."""

    uid: str
    index: int
    outcome: Outcome
    at: float


@dataclass(frozen=True, slots=True)
class CheckpointSeen:
    """A workload saved its work at ``at``; evicting it now loses what came after."""

    uid: str
    at: float


@dataclass(frozen=True, slots=True)
class CapacityReserved:
    """Capacity is reserved for a waiting workload until it is placed or removed.

    Follows from a plan's nomination; survives cycles, so nobody slips in between. ``indices`` are
    the tasks, in the order of ``places``; empty means tasks 0, 1, ...
    """

    uid: str
    places: tuple[Place, ...] = ()
    indices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class InstanceRemoved:
    """A MIG instance that nobody uses was removed; its slots are no longer kept warm."""

    node: str
    device: int
    slots: int


Event = (
    NodeSet
    | NodeRemoved
    | TopologySet
    | QueueSet
    | QueueRemoved
    | UsageSeen
    | WorkloadQueued
    | WorkloadRemoved
    | TaskPlaced
    | TaskReleasing
    | TaskStuck
    | TaskReleased
    | CheckpointSeen
    | CapacityReserved
    | InstanceRemoved
)
