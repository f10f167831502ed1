"""Kubernetes' claims, volumes and storage classes as they are decoded; see ``types``."""

import msgspec

from carrel_scheduler.engines.kubernetes.pods.types import (
    Kube,
    NodeSelector,
    ObjectMeta,
    Quantities,
)


class ClaimResources(Kube, frozen=True):
    """The requested size of a claim's volume."""

    requests: Quantities = msgspec.field(default_factory=dict)


class ClaimSpec(Kube, frozen=True):
    """The specification of a claim."""

    volume_name: str = ""
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    resources: ClaimResources = ClaimResources()


class ClaimStatus(Kube, frozen=True):
    """``Pending``, ``Bound`` or ``Lost``."""

    phase: str = ""


class PersistentVolumeClaim(Kube, frozen=True):
    """A claim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeNodeAffinity(Kube, frozen=True):
    """The nodes from which a volume can be reached."""

    required: NodeSelector | None = None


class ClaimRef(Kube, frozen=True):
    """The claim that a volume is kept for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeSpec(Kube, frozen=True):
    """The specification of a volume."""

    capacity: Quantities = msgspec.field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimRef | None = None


class PersistentVolume(Kube, frozen=True):
    """A volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeSpec = VolumeSpec()
    status: ClaimStatus = ClaimStatus()


class TopologyValues(Kube, frozen=True):
    """Values of a label of nodes."""

    key: str
    values: tuple[str, ...] = ()


class AllowedTopology(Kube, frozen=True):
    """Topology terms that all have to match."""

    match_label_expressions: tuple[TopologyValues, ...] = ()


class StorageClass(Kube, frozen=True):
    """A storage class; one of ``allowed_topologies`` has to match, if there are any."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[AllowedTopology, ...] = ()
