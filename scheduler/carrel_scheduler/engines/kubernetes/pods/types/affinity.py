"""Where a pod may run: selectors, affinities, taints, spread."""

import msgspec

from carrel_scheduler.engines.kubernetes.pods.types.meta import Kube

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
    """All of these hold; an empty term matches no node."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Kube, frozen=True):
    """One of these terms holds."""

    node_selector_terms: tuple[NodeTerm, ...] = ()


class PreferredNodes(Kube, frozen=True):
    """Nodes that are liked better, by ``weight`` 1 to 100."""

    weight: int
    preference: NodeTerm


class NodeAffinity(Kube, frozen=True):
    """Which nodes."""

    required: NodeSelector | None = msgspec.field(default=None, name=REQUIRED)
    preferred: tuple[PreferredNodes, ...] = msgspec.field(default=(), name=PREFERRED)


class PodTerm(Kube, frozen=True):
    """Near to, or far from, the pods that are selected: the same value of ``topology_key``."""

    topology_key: str
    label_selector: Selector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodTerm(Kube, frozen=True):
    """A term that is liked, by ``weight`` 1 to 100."""

    weight: int
    pod_affinity_term: PodTerm


class PodAffinity(Kube, frozen=True):
    """Which pods to be near to, or far from."""

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
    """Keeps pods away that do not tolerate it."""

    key: str
    value: str = ""
    effect: str = ""


class Toleration(Kube, frozen=True):
    """Which taints do not matter; an empty key with ``Exists`` tolerates all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None
