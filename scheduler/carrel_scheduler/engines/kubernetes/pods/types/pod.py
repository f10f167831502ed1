"""Pods."""

from datetime import datetime

import msgspec

from carrel_scheduler.engines.kubernetes.pods.types.affinity import (
    Affinity,
    SpreadConstraint,
    Toleration,
)
from carrel_scheduler.engines.kubernetes.pods.types.meta import Condition, Kube, Meta, Quantities
from carrel_scheduler.engines.kubernetes.pods.types.storage import Volume


class ResourceClaimUse(Kube, frozen=True):
    """A container's use of a claim of dynamic resource allocation."""

    name: str


class Resources(Kube, frozen=True):
    """What a container, or a whole pod, asks for."""

    requests: Quantities = msgspec.field(default_factory=dict)
    limits: Quantities = msgspec.field(default_factory=dict)
    claims: tuple[ResourceClaimUse, ...] = ()


class Port(Kube, frozen=True):
    """A port of a container; ``host_port`` 0 means none of the node's."""

    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")
    name: str = ""


class Container(Kube, frozen=True):
    """A container; an init container with restart policy ``Always`` is a sidecar."""

    name: str = ""
    image: str = ""
    resources: Resources = Resources()
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""


class SchedulingGate(Kube, frozen=True):
    """Holds a pod back until whoever set it takes it away."""

    name: str


class PodResourceClaim(Kube, frozen=True):
    """A claim of dynamic resource allocation."""

    name: str


class PodSpec(Kube, frozen=True):
    """What a pod asks for."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    scheduler_name: str = ""
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = ""
    termination_grace_period_seconds: int | None = None
    host_network: bool = False
    overhead: Quantities = msgspec.field(default_factory=dict)
    resources: Resources = Resources()
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()


class Waiting(Kube, frozen=True):
    """Why a container does not run yet."""

    reason: str = ""
    message: str = ""


class Running(Kube, frozen=True):
    """Since when a container runs."""

    started_at: datetime | None = None


class Terminated(Kube, frozen=True):
    """How a container ended."""

    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class ContainerState(Kube, frozen=True):
    """One of the three is given."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerStatus(Kube, frozen=True):
    """What became of a container."""

    name: str = ""
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()


class PodStatus(Kube, frozen=True):
    """What became of a pod."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    reason: str = ""
    message: str = ""
    nominated_node_name: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    start_time: datetime | None = None
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    container_statuses: tuple[ContainerStatus, ...] = ()


class Pod(Kube, frozen=True):
    """A pod."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ended(self) -> bool:
        """Whether it holds nothing any more: succeeded or failed."""
        return self.status.phase in ("Succeeded", "Failed")
