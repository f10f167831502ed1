"""Kubernetes objects, decoded with only the fields that are used.

Frozen, and unknown to the garbage collector (they hold no cycles): thousands are decoded at once,
and a field that is not named here costs nothing but its bytes. Written back, fields with their
default value are left out.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

from carrel_schema.groups import NodeGroupSpec, PodGroupSpec, TopologySpec

GRACE_SECONDS: Final = 30
"""Kubernetes' own choice for pods that name none."""
Quantities = dict[str, str]
"""Resource name -> quantity as Kubernetes writes it (``500m``, ``2Gi``)."""


class Kube(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A part of an object; keys are written in camel case, default values are left out."""


class Owner(Kube, frozen=True):
    """A reference to the object that made this one."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False


class ObjectMeta(Kube, frozen=True):
    """The metadata of an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[Owner, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> Owner | None:
        """The owner that is the managing controller, if any."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Condition(Kube, frozen=True):
    """A condition of an object's status."""

    type: str
    status: str = ""
    reason: str = ""
    message: str = ""


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Requirement(Kube, frozen=True):
    """``key operator values``; operators In, NotIn, Exists, DoesNotExist, and Gt, Lt for nodes."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Selector(Kube, frozen=True):
    """A selector of objects by their labels; an empty one selects all."""

    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: tuple[Requirement, ...] = ()


class NodeTerm(Kube, frozen=True):
    """A node term: all requirements have to be met; an empty term matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Kube, frozen=True):
    """Node selector terms, of which one has to match."""

    node_selector_terms: tuple[NodeTerm, ...] = ()


class PreferredNodes(Kube, frozen=True):
    """Preferred nodes, with a ``weight`` of 1 to 100."""

    weight: int
    preference: NodeTerm


class NodeAffinity(Kube, frozen=True):
    """Conditions on the nodes of a pod."""

    required: NodeSelector | None = msgspec.field(default=None, name=REQUIRED)
    preferred: tuple[PreferredNodes, ...] = msgspec.field(default=(), name=PREFERRED)


class PodTerm(Kube, frozen=True):
    """A term of affinity to the selected pods, within equal values of ``topology_key``."""

    topology_key: str
    label_selector: Selector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodTerm(Kube, frozen=True):
    """A preferred term, with a ``weight`` of 1 to 100."""

    weight: int
    pod_affinity_term: PodTerm


class PodAffinity(Kube, frozen=True):
    """Terms of pods to be near to, or far from."""

    required: tuple[PodTerm, ...] = msgspec.field(default=(), name=REQUIRED)
    preferred: tuple[WeightedPodTerm, ...] = msgspec.field(default=(), name=PREFERRED)


class Affinity(Kube, frozen=True):
    """All affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class SpreadConstraint(Kube, frozen=True):
    """Selected pods are spread evenly over the values of ``topology_key``."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: Selector | None = None
    min_domains: int | None = None
    match_label_keys: tuple[str, ...] = ()
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class Taint(Kube, frozen=True):
    """Keeps pods without a matching toleration away."""

    key: str
    value: str = ""
    effect: str = ""


class Toleration(Kube, frozen=True):
    """A taint that is tolerated; an empty key with ``Exists`` tolerates all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class ClaimUse(Kube, frozen=True):
    """A claim by its name, in the pod's namespace."""

    claim_name: str
    read_only: bool = False


class Claim(Kube, frozen=True):
    """A template of a claim that is made with the pod and named ``<pod>-<volume>``."""

    metadata: ObjectMeta = ObjectMeta()


class EphemeralVolume(Kube, frozen=True):
    """A volume whose claim is deleted with the pod."""

    volume_claim_template: Claim = Claim()


class PodVolume(Kube, frozen=True):
    """A volume of a pod, as far as it decides where the pod may run."""

    name: str
    persistent_volume_claim: ClaimUse | None = None
    ephemeral: EphemeralVolume | None = None


class ResourceClaimUse(Kube, frozen=True):
    """A container's use of a claim of dynamic resource allocation."""

    name: str


class ContainerResources(Kube, frozen=True):
    """The resources of a container, or of a whole pod."""

    requests: Quantities = msgspec.field(default_factory=dict)
    limits: Quantities = msgspec.field(default_factory=dict)
    claims: tuple[ResourceClaimUse, ...] = ()


class Port(Kube, frozen=True):
    """A port of a container; ``host_port`` 0 means none of the node's."""

    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")
    name: str = ""


class Container(Kube, frozen=True):
    """A container; an init container with restart policy ``Always`` is a sidecar."""

    name: str = ""
    image: str = ""
    resources: ContainerResources = ContainerResources()
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""


class SchedulingGate(Kube, frozen=True):
    """Keeps a pod from being scheduled until its author removes it."""

    name: str


class PodResourceClaim(Kube, frozen=True):
    """A claim of dynamic resource allocation: one that is there, or one made from a template."""

    name: str
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodResourceClaimStatus(Kube, frozen=True):
    """The claim that was created from a template; empty where none is needed."""

    name: str
    resource_claim_name: str = ""


class ExtendedResourceMapping(Kube, frozen=True):
    """An extended resource of a container that devices of a claim serve."""

    resource_name: str = ""


class ExtendedResourceClaimStatus(Kube, frozen=True):
    """The claim that a scheduler made for a pod's extended resources."""

    resource_claim_name: str = ""
    request_mappings: tuple[ExtendedResourceMapping, ...] = ()


class WorkloadReference(Kube, frozen=True):
    """A group of pods in a Workload of Kubernetes 1.35; each ``pod_group_replica_key`` is one."""

    name: str
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSchedulingGroup(Kube, frozen=True):
    """A PodGroup of Kubernetes 1.36 and later, in the pod's namespace."""

    pod_group_name: str = ""


class PodSpec(Kube, frozen=True):
    """The specification of a pod."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None
    overhead: Quantities = msgspec.field(default_factory=dict)
    resources: ContainerResources = ContainerResources()
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    workload_ref: WorkloadReference | None = None
    scheduling_group: PodSchedulingGroup | None = None


class Waiting(Kube, frozen=True):
    """The reason why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Running(Kube, frozen=True):
    """The start of a running container."""

    started_at: datetime | None = None


class Terminated(Kube, frozen=True):
    """The end of a container."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Kube, frozen=True):
    """The state of a container; one of the three is given."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Kube, frozen=True):
    """The status of a container."""

    name: str = ""
    state: ContainerState = ContainerState()


class PodStatus(Kube, frozen=True):
    """The status of a pod."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: datetime | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()
    extended_resource_claim_status: ExtendedResourceClaimStatus | None = None


class Pod(Kube, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def grace_seconds(self) -> int:
        """The pod's grace period in seconds."""
        given = self.spec.termination_grace_period_seconds
        return GRACE_SECONDS if given is None else given

    @property
    def ended(self) -> bool:
        """Whether the pod has ended and holds nothing any more: succeeded or failed."""
        return self.status.phase in ("Succeeded", "Failed")


class NodeSpec(Kube, frozen=True):
    """The settings of a node, by an admin or a controller."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeStatus(Kube, frozen=True):
    """The status that the kubelet reports."""

    capacity: Quantities = msgspec.field(default_factory=dict)
    allocatable: Quantities = msgspec.field(default_factory=dict)
    conditions: tuple[Condition, ...] = ()


class Node(Kube, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class PodGroup(Kube, frozen=True):
    """Makes the pods that name this group start together."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class NodeGroup(Kube, frozen=True):
    """A group of nodes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeGroupSpec = NodeGroupSpec()
    status: dict[str, Any] = msgspec.field(default_factory=dict)


class Topology(Kube, frozen=True):
    """The levels of a topology."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TopologySpec = TopologySpec(levels=())


class Namespace(Kube, frozen=True):
    """A namespace; its labels are asked for by affinities and by the project's."""

    metadata: ObjectMeta = ObjectMeta()


class Owned(Kube, frozen=True):
    """An object of any kind that may own pods; rules read the fields they know of it."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = msgspec.field(default_factory=dict)
    status: dict[str, Any] = msgspec.field(default_factory=dict)
