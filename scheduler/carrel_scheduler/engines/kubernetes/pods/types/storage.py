"""Volumes of pods, claims, persistent volumes and their classes."""

import msgspec

from carrel_scheduler.engines.kubernetes.pods.types.affinity import NodeSelector
from carrel_scheduler.engines.kubernetes.pods.types.meta import Kube, Meta, Quantities


class ClaimUse(Kube, frozen=True):
    """A claim by its name, in the pod's namespace."""

    claim_name: str
    read_only: bool = False


class Claim(Kube, frozen=True):
    """A template of a claim that is made with the pod and named ``<pod>-<volume>``."""

    metadata: Meta = Meta()


class EphemeralVolume(Kube, frozen=True):
    """A volume whose claim lives as long as the pod."""

    volume_claim_template: Claim = Claim()


class Volume(Kube, frozen=True):
    """A volume of a pod, as far as it decides where the pod may run."""

    name: str
    persistent_volume_claim: ClaimUse | None = None
    ephemeral: EphemeralVolume | None = None


class ClaimResources(Kube, frozen=True):
    """How large a volume a claim asks for."""

    requests: Quantities = msgspec.field(default_factory=dict)


class ClaimSpec(Kube, frozen=True):
    """What a claim asks for."""

    volume_name: str = ""
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    resources: ClaimResources = ClaimResources()


class ClaimStatus(Kube, frozen=True):
    """``Pending``, ``Bound`` or ``Lost``."""

    phase: str = ""


class PersistentVolumeClaim(Kube, frozen=True):
    """A claim."""

    metadata: Meta = Meta()
    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


class VolumeNodeAffinity(Kube, frozen=True):
    """From which nodes a volume can be reached."""

    required: NodeSelector | None = None


class ClaimRef(Kube, frozen=True):
    """For which claim a volume is kept."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeSpec(Kube, frozen=True):
    """What a volume is."""

    capacity: Quantities = msgspec.field(default_factory=dict)
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    node_affinity: VolumeNodeAffinity | None = None
    claim_ref: ClaimRef | None = None


class PersistentVolume(Kube, frozen=True):
    """A volume."""

    metadata: Meta = Meta()
    spec: VolumeSpec = VolumeSpec()
    status: ClaimStatus = ClaimStatus()


class TopologyValues(Kube, frozen=True):
    """Values of a label of nodes."""

    key: str
    values: tuple[str, ...] = ()


class AllowedTopology(Kube, frozen=True):
    """All of these hold."""

    match_label_expressions: tuple[TopologyValues, ...] = ()


class StorageClass(Kube, frozen=True):
    """A class of volumes; one of ``allowed_topologies`` holds where there are any."""

    metadata: Meta = Meta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[AllowedTopology, ...] = ()
