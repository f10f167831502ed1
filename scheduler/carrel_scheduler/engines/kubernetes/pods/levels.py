"""Which pods of a gang lie together: levels of topology, and gangs whose pods want each other.

An annotation of an owner is about the whole gang. What a pod says, by an annotation or by an
affinity to its own kind, is about its role, and counts where the gang has only one.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.requests import HOST
from carrel_scheduler.engines.kubernetes.pods.grouped import Role
from carrel_scheduler.engines.kubernetes.pods.selecting import selects
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_schema.names import GROUP

REQUIRED: Final = (
    f"{GROUP}/topology-required",
    "kai.scheduler/topology-required-placement",
    "kueue.x-k8s.io/podset-required-topology",
)
PREFERRED: Final = (
    f"{GROUP}/topology-preferred",
    "kai.scheduler/topology-preferred-placement",
    "kueue.x-k8s.io/podset-preferred-topology",
)
HOSTNAME: Final = "kubernetes.io/hostname"


def structure_of(
    name: str, roles: Sequence[Role], pod: Pod, owners: Sequence[Mapping[str, str]]
) -> Group | None:
    """How the roles of a gang lie together; ``None`` where they need not.

    Args:
        name: of the gang.
        roles: of the gang.
        pod: one of its pods.
        owners: labels and annotations of the pod's owners.
    """
    said = list(owners)
    if len(roles) == 1:
        said = [pod.metadata.labels, pod.metadata.annotations, *said]
    required, preferred = _key(said, REQUIRED), _key(said, PREFERRED)
    if not required and len(roles) == 1:
        required = _near_its_own(pod)
    if not required and not preferred:
        return None
    level = Level(required=required, preferred=preferred)
    if len(roles) == 1:
        return Group(name=roles[0].name, level=level)
    return Group(name=name, groups=tuple(Group(name=role.name) for role in roles), level=level)


def level_key(key: str) -> str:
    """A label key of nodes as the core calls that level."""
    return HOST if key == HOSTNAME else key


def _key(said: Sequence[Mapping[str, str]], keys: Sequence[str]) -> str:
    found = (labels[key] for key in keys for labels in said if labels.get(key))
    return level_key(next(found, ""))


def _near_its_own(pod: Pod) -> str:
    """The level at which a pod has to be near to pods like itself; empty where it has not."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_affinity is None:
        return ""
    for term in affinity.pod_affinity.required:
        if not term.namespaces and selects(term.label_selector, pod.metadata.labels):
            return level_key(term.topology_key)
    return ""
