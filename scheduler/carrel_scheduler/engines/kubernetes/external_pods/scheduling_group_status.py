"""The status of Kubernetes' own PodGroups whose pods name Carrel: placed, or why not.

The conditions are those of the API (from 1.36 on; a Workload of 1.35 has no status):

* ``PodGroupInitiallyScheduled``: its minimum has places; else ``Unschedulable``, and why as a
  sentence. Once true it stays true, whatever becomes of the pods. Kubernetes 1.36 calls it
  ``PodGroupScheduled``, and there it is what holds at present.
* ``DisruptionTarget``: so much of it is preempted that fewer than its minimum are left.

Nothing is watched for it: a group is read before the first write about it, and written where what
is to be said differs from what was said last.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from carrel_scheduler.engines.kubernetes.external_pods.conditions import (
    LOOK_SECONDS,
    why_not_placed,
)
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import (
    ExternalPod,
    ExternalTask,
    ExternalWorkload,
)
from carrel_scheduler.engines.kubernetes.external_pods.reading import OwnerLookup
from carrel_scheduler.engines.kubernetes.external_pods.reconcile_pass import ReconcilePass
from carrel_scheduler.engines.kubernetes.notifications import UNSCHEDULABLE, timestamp
from carrel_scheduler.engines.kubernetes.pods.scheduling_groups import API_GROUP
from carrel_scheduler.engines.kubernetes.pods.types import Condition, Kube, ObjectMeta, Owner
from carrel_scheduler.kube.client import KubeClient, PatchKind
from carrel_scheduler.kube.errors import Conflict, KubeError, NotFound

log = logging.getLogger(__name__)
SCHEDULED: Final = "PodGroupInitiallyScheduled"
SCHEDULED_AT_PRESENT: Final = {"v1alpha2": "PodGroupScheduled"}
"""The name of that condition which may become false again, by version."""
DISRUPTED: Final = "DisruptionTarget"
PREEMPTED: Final = "PreemptionByScheduler"
KIND: Final = "PodGroup"
MOST_AT_ONCE: Final = 20
"""The most groups that are written at a time; the others follow."""
Key = tuple[str, str]
"""Namespace and name of a group."""
Said = tuple[bool, str, str]
"""Whether a condition holds, its reason and message."""


@dataclass(slots=True)
class GroupPods:
    """The pods of a group, counted."""

    tasks: list[tuple[ExternalWorkload, ExternalTask]] = field(default_factory=list)
    without_queue: list[ExternalPod] = field(default_factory=list)


class _GroupStatus(Kube, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _GroupObject(Kube, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _GroupStatus = _GroupStatus()


@dataclass(slots=True)
class _Written:
    """A group as it was read, and what was written about it last, by type of condition.

    ``version`` is that of the API in which it was read.
    """

    uid: str
    version: str
    said: dict[str, Said]

    def outdated(self, said: dict[str, Said]) -> dict[str, Said]:
        """The conditions to write."""
        return outdated(self.said, said, stays=self.version not in SCHEDULED_AT_PRESENT)


def groups_of(current: ReconcilePass) -> dict[Key, GroupPods]:
    """All groups that pods name in their specification, with these pods."""
    found: dict[Key, GroupPods] = {}
    for workload in current.index.workloads.values():
        for task in workload.tasks:
            if task.pod is not None and (key := _group_of(task.pod)) is not None:
                found.setdefault(key, GroupPods()).tasks.append((workload, task))
    for pods in current.index.without_queue.values():
        for pod in pods.values():
            if (key := _group_of(pod)) is not None:
                found.setdefault(key, GroupPods()).without_queue.append(pod)
    return found


def _group_of(pod: ExternalPod) -> Key | None:
    group = pod.manifest.spec.scheduling_group
    if group is None or not group.pod_group_name or pod.refusal:
        return None
    return pod.ref.namespace, group.pod_group_name


def conditions_of(pods: GroupPods) -> dict[str, Said]:
    """The conditions of a group, by type."""
    workloads = list(dict.fromkeys(workload for workload, _ in pods.tasks))
    least = max((_least(workload) for workload in workloads), default=1)
    placed = sum(task.allocation is not None for _, task in pods.tasks)
    evicted = [pair for pair in pods.tasks if pair[1].allocation is not None and pair[1].evicted]
    total = len(pods.tasks) + len(pods.without_queue)
    waits = any(workload.single and not workload.holding for workload in workloads)
    said: dict[str, Said] = {}
    if placed >= least and not (least == 1 and waits):
        said[SCHEDULED] = True, "Scheduled", f"{placed} of its {total} pods have their places."
    else:
        _, why = why_not_placed(least, _waiting(workloads), pods.without_queue, total)
        said[SCHEDULED] = False, UNSCHEDULABLE, why
    if evicted and placed - len(evicted) < least:
        said[DISRUPTED] = True, PREEMPTED, evicted[0][0].gives_way
    return said


def _waiting(workloads: Sequence[ExternalWorkload]) -> list[ExternalWorkload]:
    return [workload for workload in workloads if not workload.holding]


def _least(workload: ExternalWorkload) -> int:
    return 1 if workload.single else sum(role.least for role in workload.grouping.roles)


class SchedulingGroupStatuses:
    """See the module.

    Args:
        client: of the API server.
        current: what the reconciler knows.
        now: epoch seconds.
    """

    def __init__(
        self, client: KubeClient, current: ReconcilePass, now: Callable[[], float]
    ) -> None:
        self._client, self._current, self._now = client, current, now
        self._kinds = OwnerLookup(client)
        self._written: dict[Key, _Written] = {}
        self._changed = asyncio.Event()
        current.listeners.append(self._changed.set)

    async def run(self) -> None:
        """Evaluate and write until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._current.ready:
                await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Write what is outdated."""
        groups, left = groups_of(self._current), MOST_AT_ONCE
        for key in self._written.keys() - groups.keys():
            del self._written[key]
        for key, pods in groups.items():
            with self._current.quarantine.guard("pod", f"group {'/'.join(key)}"):
                said, known = conditions_of(pods), self._written.get(key)
                if known is not None and not known.outdated(said):
                    continue
                if not left:
                    self._changed.set()
                    return
                left -= 1
                await self._write(key, said)

    async def _write(self, key: Key, said: dict[str, Said]) -> None:
        namespace, name = key
        kind = Owner(f"{API_GROUP}/", KIND, name, "")
        try:
            resource = await self._kinds.resource(kind)
            if resource is None:
                return
            known = self._written.get(key)
            if known is None or known.version != resource.version:
                found = await self._client.get(resource, name, namespace, type=_GroupObject)
                known = self._written[key] = _read(found, resource.version)
            changed = known.outdated(said)
            if not changed:
                return
            body = {
                "metadata": {"uid": known.uid},
                "status": {"conditions": self._conditions(known, changed)},
            }
            how = PatchKind.STRATEGIC
            await self._client.patch(resource, name, body, namespace, sub="status", how=how)
            known.said.update(changed)
        except (NotFound, Conflict) as error:
            self._written.pop(key, None)  # gone, or made anew: its pods come again, too
            if isinstance(error, NotFound):
                self._kinds.forget(kind)  # perhaps that version is not served any more
            log.debug("group %s/%s: %s", namespace, name, error)
        except KubeError as error:
            log.info("the status of group %s/%s is not written: %s", namespace, name, error)
            self._changed.set()

    def _conditions(self, known: _Written, changed: dict[str, Said]) -> list[dict[str, Any]]:
        """Conditions as they are written; the time of one changes when its status does."""
        found, before = [], known.said
        for kind, (holds, reason, message) in changed.items():
            status = "True" if holds else "False"
            called = _called(kind, known.version)
            one = {"type": called, "status": status, "reason": reason, "message": message}
            if kind not in before or before[kind][0] != holds:
                one["lastTransitionTime"] = timestamp(self._now())
            found.append(one)
        return found


def outdated(
    before: dict[str, Said], said: dict[str, Said], *, stays: bool = True
) -> dict[str, Said]:
    """The conditions to write; a disruption of which nothing is said any more is over.

    ``stays``: a group that was scheduled once is never said not to be.
    """
    now = dict(said)
    was, is_now = before.get(SCHEDULED), now.get(SCHEDULED)
    if stays and was and was[0] and is_now and not is_now[0]:
        del now[SCHEDULED]
    disrupted = before.get(DISRUPTED)
    if DISRUPTED not in now and disrupted is not None and disrupted[0]:
        now[DISRUPTED] = (False, *disrupted[1:])
    return {kind: one for kind, one in now.items() if before.get(kind) != one}


def _called(kind: str, version: str) -> str:
    """The type of a condition in a version of the API."""
    return SCHEDULED_AT_PRESENT.get(version, kind) if kind == SCHEDULED else kind


def _read(found: _GroupObject, version: str) -> _Written:
    there = {one.type: one for one in found.status.conditions}
    said = {
        kind: (one.status == "True", one.reason, one.message)
        for kind in (SCHEDULED, DISRUPTED)
        if (one := there.get(_called(kind, version))) is not None
    }
    return _Written(found.metadata.uid, version, said)
