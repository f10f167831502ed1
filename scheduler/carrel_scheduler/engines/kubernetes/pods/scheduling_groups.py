"""Kubernetes' own groups of pods: API group ``scheduling.k8s.io``, in every version that has them.

| Kubernetes | versions | the pod names its group in | its minimum |
|---|---|---|---|
| 1.35 | v1alpha1 | ``spec.workloadRef`` | Workload: ``spec.podGroups[].policy.gang.minCount`` |
| 1.36 | v1alpha2 | ``spec.schedulingGroup`` | PodGroup: ``spec.schedulingPolicy.gang.minCount`` |
| 1.37 | v1alpha3, v1beta1 | ``spec.schedulingGroup`` | the same |

A group with the policy ``basic`` has no minimum: each of its pods is placed for itself. Groups that
are part of a CompositePodGroup are refused: starting one of them without the others is what their
author excluded.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from carrel_scheduler.core.settings import NAMED
from carrel_scheduler.engines.kubernetes.pods.labels import PREEMPTION_POLICY, PRIORITY, REQUIRED
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.role_counts import number, value_at
from carrel_scheduler.engines.kubernetes.pods.types import Owned, Owner, Pod

API_GROUP: Final = "scheduling.k8s.io"
KINDS: Final = ("PodGroup", "Workload")
DISRUPTION_MODE: Final = "spec.disruptionMode"


@dataclass(frozen=True, slots=True)
class GroupReference:
    """A pod's reference to its group.

    Attributes:
        field: of the pod, as a path.
        owner: the object that has the group's minimum.
        part: the group within a Workload; empty for a PodGroup.
        replica: which replica of that part.
    """

    field: str
    owner: Owner
    part: str = ""
    replica: str = ""


@dataclass(frozen=True, slots=True)
class SchedulingGroup:
    """The contents of a group.

    Attributes:
        uid: unique among all groups.
        name: for people.
        least: so many pods start together; ``None``: each for itself.
        fields: priority, preemption policy and topology, as if they were labels.
        whole: its pods are preempted together or not at all.
    """

    uid: str
    name: str
    least: int | None
    fields: Mapping[str, str]
    whole: bool = False


def reference_of(pod: Pod) -> GroupReference | None:
    """The group that a pod names in its specification; ``None`` where it names none."""
    if (group := pod.spec.scheduling_group) is not None:
        return GroupReference(
            "spec.schedulingGroup.podGroupName", _owner("PodGroup", group.pod_group_name)
        )
    if (part := pod.spec.workload_ref) is not None:
        return GroupReference(
            "spec.workloadRef",
            _owner("Workload", part.name),
            part.pod_group,
            part.pod_group_replica_key,
        )
    return None


def _owner(kind: str, name: str) -> Owner:
    return Owner(f"{API_GROUP}/", kind, name, "")


def read_group(reference: GroupReference, found: Owned) -> SchedulingGroup:
    """The group in the object that a pod's reference leads to.

    Raises:
        PodRefused: a Workload without the group, a policy without a minimum, a mode of disruption
            that cannot be kept, or a group of groups.
    """
    name = found.metadata.name or reference.owner.name
    if reference.owner.kind == "PodGroup":
        least = _least(reference, found.spec, "schedulingPolicy")
        if parent := value_at(found.spec, "parentCompositePodGroupName"):
            expected = "left out: groups of groups are not placed"
            raise PodRefused("composite", "spec.parentCompositePodGroupName", parent, expected)
        whole = _is_whole(found.spec)
        if whole and least is None:
            expected = "`single` where its `schedulingPolicy` is `basic`: each pod is for itself"
            raise PodRefused("bad_disruption_mode", DISRUPTION_MODE, "all", expected)
        fields = dict(_fields(found.spec))
        return SchedulingGroup(found.metadata.uid, name, least, fields, whole)
    parts = value_at(found.spec, "podGroups")
    for part in parts if isinstance(parts, list) else ():
        if value_at(part, "name") == reference.part:
            said = [text for text in (reference.part, reference.replica) if text]
            return SchedulingGroup(
                f"{found.metadata.uid}.{reference.part}.{reference.replica}",
                "-".join((name, *said)),
                _least(reference, part, "policy"),
                {},
            )
    raise PodRefused(
        "no_pod_group",
        f"{reference.field}.podGroup",
        reference.part,
        f"a group in `spec.podGroups` of the Workload `{name}`",
    )


def _is_whole(spec: Mapping[str, Any]) -> bool:
    """Whether pods of a group are preempted together only; by default each may be by itself."""
    said = spec.get("disruptionMode")
    if said is None or said == "Pod" or (isinstance(said, Mapping) and "single" in said):
        return False
    if said == "PodGroup" or (isinstance(said, Mapping) and "all" in said):
        return True
    written = ", ".join(map(str, said)) if isinstance(said, Mapping) else said
    expected = "`single` or `all` (Kubernetes 1.36: `Pod` or `PodGroup`)"
    raise PodRefused("bad_disruption_mode", DISRUPTION_MODE, written, expected)


def _least(reference: GroupReference, spec: object, policy: str) -> int | None:
    said = value_at(spec, policy)
    if (least := number(said, "gang.minCount")) is not None and least > 0:
        return least
    if isinstance(said, Mapping) and "gang" not in said and "basic" in said:
        return None
    expected = f"a group whose `{policy}` is `basic` or has a `gang.minCount` above 0"
    raise PodRefused(
        "bad_policy", reference.field, reference.part or reference.owner.name, expected
    )


def _fields(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    named, value = spec.get("priorityClassName"), spec.get("priority")
    if isinstance(named, str) and named in NAMED:
        yield PRIORITY, named
    elif (
        isinstance(value, int) and not isinstance(value, bool) and value
    ):  # 0 is what groups without a class have
        yield PRIORITY, str(value)
    if spec.get("preemptionPolicy") == "Never":
        yield PREEMPTION_POLICY, "Never"
    levels = value_at(spec, "schedulingConstraints.topology")
    for level in levels if isinstance(levels, list) else ():
        if isinstance(key := value_at(level, "key"), str):
            yield REQUIRED[0], key
