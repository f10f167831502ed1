"""Classification of pods: from a pod of the cluster to the event that the reconciler handles.

A pod with our scheduler's name that a task made belongs to a workload and is followed by the
engine: the label says so in the namespaces of projects, where only scheduler and Hub may write it.
One without such a label is an external pod; every other pod that has a node is unmanaged. A running
pod counts as what it was bound for, whatever its labels are by now.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from carrel_scheduler.core.events import Outcome
from carrel_scheduler.engines.kubernetes.binding import read_devices, read_slots
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    ExternalPodSeen,
    PodDeleted,
    TaskPodSeen,
    UnmanagedPodSeen,
)
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import ExternalPod, PodRef
from carrel_scheduler.engines.kubernetes.pods import labels
from carrel_scheduler.engines.kubernetes.pods.grouping import Grouper, GroupMissing
from carrel_scheduler.engines.kubernetes.pods.labels import Grouped, Grouping
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.types import Namespace, Owned, Owner, Pod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Forbidden, NotFound
from carrel_scheduler.kube.resources import Resource
from carrel_schema.names import (
    DEVICES,
    MIG_SLOTS,
    NAMESPACE_PREFIX,
    PROJECT,
    SCHEDULER_NAME,
    TASK,
)


class _ApiResource(msgspec.Struct):
    name: str
    kind: str
    namespaced: bool = True


class _ApiResources(msgspec.Struct):
    resources: list[_ApiResource] = []


class _ApiVersion(msgspec.Struct, rename="camel"):
    group_version: str


class _ApiGroup(msgspec.Struct):
    versions: list[_ApiVersion] = []


class OwnerLookup:
    """Gets owners by their references; the server says under which path each kind lives.

    A reference without a version (``scheduling.k8s.io/``) leads to the first version that has the
    kind, in the server's order: the most stable one. It is looked up again when it is not served
    any more.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._kinds: dict[tuple[str, str], Resource] = {}

    async def __call__(self, owner: Owner, namespace: str) -> Owned | None:
        """The owner object; ``None`` if it does not exist or may not be read."""
        try:
            resource = await self.resource(owner)
            if resource is None:
                return None
            where = namespace if resource.namespaced else ""
            return await self._client.get(resource, owner.name, where, type=Owned)
        except NotFound:
            self.forget(owner)
            return None
        except Forbidden:
            return None

    def forget(self, owner: Owner) -> None:
        """Look the version of a reference without one up again at its next use."""
        if owner.api_version.endswith("/"):
            self._kinds.pop((owner.api_version, owner.kind), None)

    async def resource(self, owner: Owner) -> Resource | None:
        """The kind of an owner as the server has it; ``None`` where it has none."""
        key = (owner.api_version, owner.kind)
        if key not in self._kinds:
            for api_version in await self._versions(owner.api_version):
                await self._read_kinds(api_version)
                if found := self._kinds.get((api_version, owner.kind)):
                    self._kinds[key] = found
                    break
        return self._kinds.get(key)

    async def _versions(self, api_version: str) -> list[str]:
        if not api_version.endswith("/"):
            return [api_version]
        answer = await self._client.raw("GET", f"/apis/{api_version.rstrip('/')}")
        group = msgspec.json.decode(answer, type=_ApiGroup)
        return [version.group_version for version in group.versions]

    async def _read_kinds(self, api_version: str) -> None:
        group, _, version = api_version.rpartition("/")
        root = f"/apis/{api_version}" if group else f"/api/{version}"
        kinds = msgspec.json.decode(await self._client.raw("GET", root), type=_ApiResources)
        for one in kinds.resources:
            if "/" not in one.name:
                found = Resource(group, version, one.name, one.kind, one.namespaced)
                self._kinds[api_version, one.kind] = found


class KnownProjects:
    """Projects by name, and by the namespaces that belong to them.

    Args:
        projects: by name, as the loop knows them.
        namespaces: gives them by uid, as the cluster shows them now.
    """

    def __init__(
        self, projects: Mapping[str, Any], namespaces: Callable[[], Mapping[str, Namespace]]
    ) -> None:
        self._projects = projects
        self._namespaces = namespaces

    def known(self, name: str) -> bool:
        """Whether the project exists."""
        return name in self._projects

    def of_namespace(self, namespace: str) -> str:
        """The project named by a namespace's label; empty without one."""
        if namespace.startswith(NAMESPACE_PREFIX):
            return namespace.removeprefix(NAMESPACE_PREFIX)
        for one in self._namespaces().values():
            if one.metadata.name == namespace:
                return one.metadata.labels.get(PROJECT, "")
        return ""


_ENDED: Final = {"Succeeded": Outcome.SUCCEEDED, "Failed": Outcome.FAILED}
_SCHEDULED: Final = "PodScheduled"


class PodReader:
    """Reads pods. The group of a pod is read once it is bound, before that whenever it changes."""

    def __init__(self, grouper: Grouper) -> None:
        self._grouper = grouper
        self._read: dict[str, Grouped] = {}

    async def seen(self, pod: Pod) -> ExternalPodSeen | UnmanagedPodSeen | TaskPodSeen:
        """The event of a pod that is new or changed."""
        if pod.spec.scheduler_name != SCHEDULER_NAME:
            return UnmanagedPodSeen(pod)
        if TASK in pod.metadata.labels and pod.metadata.namespace.startswith(NAMESPACE_PREFIX):
            return TaskPodSeen(pod)
        try:
            return ExternalPodSeen(_external_pod(pod, await self._grouped(pod)))
        except PodRefused as error:
            if not pod.spec.node_name:
                refused = _external_pod(pod, Grouped(_nameless(pod)), error.sentence)
                return ExternalPodSeen(
                    replace(refused, awaits_group=isinstance(error, GroupMissing))
                )
            was = labels.read_counted(pod.metadata.annotations)
            if was is None:
                return UnmanagedPodSeen(pod)
            return ExternalPodSeen(
                _external_pod(pod, Grouped(labels.as_counted(_nameless(pod), was)))
            )

    def gone(self, pod: Pod) -> PodDeleted:
        """The event of a deleted pod."""
        self._read.pop(pod.metadata.uid, None)
        return PodDeleted(pod.metadata.uid)

    async def _grouped(self, pod: Pod) -> Grouped:
        known = self._read.get(pod.metadata.uid)
        if known is None or not pod.spec.node_name:
            known = await self._grouper.group(pod)
            was = labels.read_counted(pod.metadata.annotations) if pod.spec.node_name else None
            if was is not None:
                known = Grouped(labels.as_counted(known.grouping, was), known.role)
            self._read[pod.metadata.uid] = known
        return known


def _external_pod(pod: Pod, grouped: Grouped, refusal: str = "") -> ExternalPod:
    meta, spec, status = pod.metadata, pod.spec, pod.status
    return ExternalPod(
        ref=PodRef(meta.namespace, meta.name, meta.uid),
        grouping=grouped.grouping,
        manifest=pod,
        role=grouped.role,
        node=spec.node_name,
        devices=read_devices(meta.annotations.get(DEVICES)) if spec.node_name else None,
        slots=read_slots(meta.annotations.get(MIG_SLOTS, "")) if spec.node_name else 0,
        gated=bool(spec.scheduling_gates),
        ending=meta.deletion_timestamp is not None,
        outcome=_ENDED.get(status.phase),
        grace_seconds=float(pod.grace_seconds),
        started_at=status.start_time.timestamp() if status.start_time else 0.0,
        told="" if spec.node_name else _told(pod),
        refusal=refusal,
    )


def _told(pod: Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == _SCHEDULED and condition.status == "False":
            return condition.message
    return ""


def _nameless(pod: Pod) -> Grouping:
    """A group for a pod that cannot be read: its condition says so, it is never queued."""
    meta = pod.metadata
    return Grouping(uid=meta.uid, name=meta.name, project=meta.namespace)
