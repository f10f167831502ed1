"""Messages in pods' conditions, and the status of PodGroups and NodeGroups.

Groups are evaluated when an event may concern them, at most once a second, and written where their
status is outdated. A write names the version that it was decided on.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from carrel_scheduler.core.messages import render
from carrel_scheduler.core.reasons import Reason
from carrel_scheduler.engines.external import WAITS_FOR_NODES, NodeRequestNote
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import (
    ExternalPod,
    ExternalWorkload,
)
from carrel_scheduler.engines.kubernetes.external_pods.reconcile_pass import ReconcilePass
from carrel_scheduler.engines.kubernetes.notifications import timestamp
from carrel_scheduler.engines.kubernetes.pods.nodes import gpu_count, in_order
from carrel_scheduler.engines.kubernetes.pods.types import Node, NodeGroup, PodGroup
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Conflict, KubeError, NotFound
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.resources.kinds import NODE_GROUP, POD_GROUP

NO_PROJECT: Final = "ProjectNotFound"
CAN_NOT_BE_PLACED: Final = "CanNotBePlaced"
REFUSED: Final = "BindingRefused"
INCOMPLETE: Final = "GangIncomplete"
NODE_LOST: Final = "NodeLost"
PROTECTED: Final = "EvictionRefused"
PODS_MISSING: Final = "PodsMissing"
QUEUED: Final = "Queued"


def no_project(name: str) -> str:
    """The notice for a pod that names an unknown project."""
    return (
        f"There is no project `{name}`. Label the pod with `carrel.dev/project`, or make the "
        "project; the pod is placed as soon as it is there."
    )


def waits(reason: Reason, project: str, note: NodeRequestNote | None = None) -> tuple[str, str]:
    """Token and sentence of why a pod waits, with what would help and without names of others.

    ``note`` says what was done about nodes for it.
    """
    if note is not None and note.waits:
        return WAITS_FOR_NODES, note.sentence
    sentence = render.sentence(reason, project, names=False)
    helps = render.help_text(reason, project, names=False)
    about_nodes = "" if note is None else note.sentence
    return reason.token.value, " ".join(one for one in (sentence, about_nodes, helps) if one)


def one_of(kind: str, name: str) -> str:
    """The beginning of what a pod is told while the gang that it is one of waits."""
    return f"It is one of {kind} `{name}`, which starts as a whole."


def pods_missing(workload: ExternalWorkload) -> str:
    """What the pods of a gang are told that has too few pods to start."""
    several = len(workload.grouping.roles) > 1
    missing = " and ".join(
        f"{count:,} of {role.least:,} pods" + (f" of role `{role.name}`" if several else "")
        for role, count in workload.missing()
    )
    whole = one_of(workload.grouping.kind, workload.name)
    return f"{whole} It waits for {missing}, which are not there yet or may not start."


def evicted(reason: Reason, project: str) -> tuple[str, str]:
    """The token and sentence of why a pod is evicted."""
    return reason.token.value, render.sentence(reason, project, names=False)


def does_not_give_way(why: str) -> str:
    """The notice for a pod whose eviction the cluster refuses."""
    return f"It is to be evicted, and that is refused: {why.rstrip('.')}. That is tried again."


def takes_the_place(pod: str) -> str:
    """The notice for a pod whose predecessor of the same name is still terminating."""
    return f"It takes the place of pod `{pod}`, which is still ending."


def incomplete(name: str) -> str:
    """A gang of which one could not start."""
    return (
        f"Not all of `{name}` could start, so none of it holds resources; all of it starts again."
    )


def node_lost(node: str) -> str:
    """A pod's node is gone or does not answer."""
    return (
        f"Node `{node}` does not answer or is gone: what ran there counts as lost, and is placed "
        "elsewhere when its controller makes it again."
    )


Status = dict[str, Any]
SCHEDULED: Final = "Scheduled"
COMPLETE: Final = "Complete"
HAS_NODES: Final = "HasNodes"


def pod_group_status(
    group: PodGroup,
    workloads: Sequence[ExternalWorkload],
    without_queue: Iterable[ExternalPod],
    now: float,
) -> Status:
    """The status of a group of pods.

    Args:
        group: with the status that it has.
        workloads: of its pods, as the loop knows them.
        without_queue: those of its pods whose project is not known.
        now: epoch seconds.
    """
    tasks = [task for workload in workloads for task in workload.tasks]
    lost = list(without_queue)
    pods = sum(task.pod is not None for task in tasks) + len(lost)
    placed = sum(task.allocation is not None for task in tasks)
    was = str(group.status.get("phase", "pending"))
    phase = "placed" if placed else "ended" if not pods and was != "pending" else "pending"
    token, reason = {"placed": ("Placed", ""), "ended": ("Ended", "Its pods have ended.")}.get(
        phase
    ) or why_not_placed(group.spec.min_member, workloads, lost, pods)
    observed = {SCHEDULED: (phase == "placed", token, reason)}
    if phase == "ended":
        observed[COMPLETE] = (True, token, reason)
    return {
        "phase": phase,
        "pods": pods,
        "placed": placed,
        "reason": reason if phase == "pending" else "",
        **_observed(group, observed, now),
    }


def why_not_placed(
    least: int, workloads: Sequence[ExternalWorkload], lost: Sequence[ExternalPod], pods: int
) -> tuple[str, str]:
    """The reason of pending pods in a group: token and message.

    Args:
        least: so many start together.
        workloads: of its pods.
        lost: those of its pods whose project is not known.
        pods: how many pods there are.
    """
    if lost:
        return NO_PROJECT, no_project(lost[0].grouping.project)
    for workload in workloads:
        for task in workload.tasks:
            if task.waits:
                return CAN_NOT_BE_PLACED, task.waits
    if pods < least:
        some = f"only {pods:,} of them {'is' if pods == 1 else 'are'} there"
        there = some if pods else "none of its pods is there"
        return PODS_MISSING, f"It starts with {least:,} pods at once, and {there}."
    return next(
        (workload.why for workload in workloads if workload.why[0]), (QUEUED, "It is in the queue.")
    )


def node_group_status(group: NodeGroup, nodes: Sequence[Node], now: float) -> Status:
    """The status of a group of nodes.

    Args:
        group: with the status that it has.
        nodes: those that are in it.
        now: epoch seconds.
    """
    available = sum(in_order(node) for node in nodes)
    if nodes:
        count = "1 node" if len(nodes) == 1 else f"{len(nodes):,} nodes"
        observed = (
            True,
            "NodesFound",
            f"{count}, of which {available:,} may be given new work.",
        )
    else:
        text = "No node is in it. A node is in the first group, by name, whose labels it has."
        observed = (False, "NoNodes", text)
    return {
        "nodes": len(nodes),
        "available": available,
        "gpus": sum(gpu_count(node) for node in nodes),
        **_observed(group, {HAS_NODES: observed}, now),
    }


def _observed(
    group: PodGroup | NodeGroup, observed: dict[str, tuple[bool, str, str]], now: float
) -> Status:
    """The generation that a status is of, and its conditions; each since it is as it is."""
    generation = group.metadata.generation
    before = {one["type"]: one for one in group.status.get("conditions", ())}
    conditions = []
    for kind, (holds, reason, message) in observed.items():
        known, status = before.get(kind, {}), "True" if holds else "False"
        since = known.get("lastTransitionTime") if known.get("status") == status else None
        conditions.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since or timestamp(now),
                "observedGeneration": generation,
            }
        )
    return {"observedGeneration": generation, "conditions": conditions}


log = logging.getLogger(__name__)
LOOK_SECONDS: Final = 1.0


class GroupStatuses:
    """See the module.

    Args:
        client: of the API server.
        current: what the reconciler knows.
        pods, nodes: the groups there are.
        now: epoch seconds.
    """

    def __init__(
        self,
        client: KubeClient,
        current: ReconcilePass,
        pods: Feed[PodGroup],
        nodes: Feed[NodeGroup],
        now: Callable[[], float],
    ) -> None:
        self._client, self._current, self._now = client, current, now
        self._pods, self._nodes = pods, nodes
        self._changed = asyncio.Event()
        current.listeners.append(self._changed.set)

    async def run(self) -> None:
        """Evaluate and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(self._pods))
            group.create_task(self._follow(self._nodes))
            while True:
                await self._changed.wait()
                self._changed.clear()
                if self._current.ready:
                    await self._look_at_pods()
                    await self._look_at_nodes()
                await asyncio.sleep(LOOK_SECONDS)

    async def _follow(self, feed: Feed[PodGroup] | Feed[NodeGroup]) -> None:
        subscription = feed.subscribe()
        while await subscription.batch():
            self._changed.set()

    async def _look_at_pods(self) -> None:
        groups = list(self._pods.objects.values())
        if not groups:
            return
        workloads: dict[str, list[ExternalWorkload]] = defaultdict(list)
        for workload in self._current.index.workloads.values():
            workloads[workload.grouping.uid].append(workload)
        without_queue: dict[str, list[ExternalPod]] = defaultdict(list)
        for pods in self._current.index.without_queue.values():
            for pod in pods.values():
                without_queue[pod.grouping.uid].append(pod)
        statuses: list[tuple[PodGroup, Status]] = []
        for one in groups:
            uid = one.metadata.uid
            with self._current.quarantine.guard("pod", f"group {uid}"):
                status = pod_group_status(one, workloads[uid], without_queue[uid], self._now())
                statuses.append((one, status))
        for one, status in statuses:
            await self._write(POD_GROUP.resource, one, status)

    async def _look_at_nodes(self) -> None:
        groups = list(self._nodes.objects.values())
        if not groups:
            return
        nodes_of: dict[str, list[Node]] = defaultdict(list)
        for node in self._current.nodes.objects():
            nodes_of[self._current.places.groups.of(node)].append(node)
        for one in groups:
            with self._current.quarantine.guard("node", f"group {one.metadata.name}"):
                status = node_group_status(one, nodes_of[one.metadata.name], self._now())
                await self._write(NODE_GROUP.resource, one, status)

    async def _write(self, resource: Resource, group: PodGroup | NodeGroup, status: Status) -> None:
        if all(group.status.get(name) == value for name, value in status.items()):
            return
        meta = group.metadata
        body = {"metadata": {"resourceVersion": meta.resource_version}, "status": status}
        try:
            await self._client.patch(resource, meta.name, body, meta.namespace, "status")
        except (NotFound, Conflict):
            self._changed.set()  # it changed meanwhile, which is an event of its own
        except KubeError as error:
            log.info("the status of %s %s is not written: %s", resource.kind, meta.name, error)
            self._changed.set()
