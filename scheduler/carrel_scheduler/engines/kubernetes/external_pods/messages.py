"""Events that external pods and nodes cause, and orders that a reconcile pass leaves behind.

PodOrders are carried out after the pass (``executor``).
"""

from dataclasses import dataclass, field

from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import ExternalPod, PodRef
from carrel_scheduler.engines.kubernetes.pods.devices.orders import AllocateClaim, ReleaseClaim
from carrel_scheduler.engines.kubernetes.pods.placement.volumes import Decision
from carrel_scheduler.engines.kubernetes.pods.types import Node, NodeGroup, Pod, Topology
from carrel_scheduler.engines.kubernetes.provisioning.messages import RequestEvent
from carrel_scheduler.ledger.records import Transition


@dataclass(frozen=True, slots=True)
class ExternalPodSeen:
    """An external pod was created or changed."""

    pod: ExternalPod


@dataclass(frozen=True, slots=True)
class UnmanagedPodSeen:
    """An unmanaged pod was created or changed."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class TaskPodSeen:
    """A task's pod was created or changed, which may affect pod affinities."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodDeleted:
    """A pod was deleted, or uses nothing any more."""

    uid: str


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node appeared or changed."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    """A node was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class NodeGroupSeen:
    """A group of nodes appeared or changed."""

    group: NodeGroup


@dataclass(frozen=True, slots=True)
class NodeGroupDeleted:
    """A group of nodes was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class TopologySeen:
    """A topology appeared or changed."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class TopologyDeleted:
    """A topology was deleted."""

    name: str


@dataclass(frozen=True, slots=True)
class AllReconciled:
    """All objects that existed at the start were delivered, and all workloads are recovered."""


@dataclass(frozen=True, slots=True)
class BindingFailed:
    """A pod was not bound.

    Attributes:
        text: the API server's message.
        final: asking again would be answered alike.
    """

    pod: PodRef
    text: str
    final: bool


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """A pod could not be evicted for long: a disruption budget protects it; see ``text``."""

    pod: PodRef
    text: str


NodeEvent = (
    NodeSeen | NodeDeleted | NodeGroupSeen | NodeGroupDeleted | TopologySeen | TopologyDeleted
)
ExternalEvent = (
    ExternalPodSeen
    | UnmanagedPodSeen
    | TaskPodSeen
    | PodDeleted
    | NodeEvent
    | AllReconciled
    | BindingFailed
    | EvictionRefused
    | RequestEvent
)


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a pod to a node, with devices, after what was decided about its claims is written.

    ``first`` is about its volumes, ``claims`` about devices; ``seen`` is the pod as it was decided
    on, ``counted`` whom it counts for (``pods.counted``). With ``slots`` it has the MIG instance of
    that profile there.
    """

    pod: PodRef
    node: str
    devices: tuple[int, ...]
    seen: Pod
    first: tuple[Decision, ...] = ()
    counted: str = ""
    claims: tuple[AllocateClaim, ...] = ()
    mig_profile: str = ""
    slots: int = 0


@dataclass(frozen=True, slots=True)
class Evict:
    """Evict a pod.

    Attributes:
        reason: a token in CamelCase, such as ``PreemptionByScheduler``.
        message: for whom and why, in a sentence.
    """

    pod: PodRef
    reason: str
    message: str
    grace_seconds: float


@dataclass(frozen=True, slots=True)
class ReportPending:
    """Order: write a pod's reason into its condition, and as an event."""

    pod: PodRef
    token: str
    message: str


@dataclass(frozen=True, slots=True)
class ReportEvent:
    """Order: write an event about a pod."""

    pod: PodRef
    token: str
    message: str


@dataclass(frozen=True, slots=True)
class Nominate:
    """Record the node where capacity is being freed for a pod."""

    pod: PodRef
    node: str


@dataclass(slots=True)
class PodOrders:
    """The orders of a pass, and the rows of history that go with them."""

    binds: list[Bind] = field(default_factory=list)
    evictions: list[Evict] = field(default_factory=list)
    pending_reports: list[ReportPending] = field(default_factory=list)
    event_reports: list[ReportEvent] = field(default_factory=list)
    nominations: list[Nominate] = field(default_factory=list)
    releases: list[ReleaseClaim] = field(default_factory=list)
    rows: list[Transition] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there are orders."""
        return bool(
            self.binds
            or self.evictions
            or self.pending_reports
            or self.event_reports
            or self.nominations
            or self.releases
            or self.rows
        )
