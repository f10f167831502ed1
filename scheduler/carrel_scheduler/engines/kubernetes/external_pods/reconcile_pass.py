"""Bringing the core in line with external pods: the shared state of a pass, and its steps.

Everything that happened to a workload in a pass is looked at once, in this order: ended pods give
their allocations back, bound pods get theirs, and a workload that holds nothing is queued if enough
of its pods are there.
"""

import heapq
import itertools
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from carrel_scheduler.core.events import (
    Outcome,
    TaskReleased,
    TaskReleasing,
    TaskStuck,
    WorkloadGone,
)
from carrel_scheduler.engines.contract import LATE_SECONDS
from carrel_scheduler.engines.external import ReconcilerAccess
from carrel_scheduler.engines.kubernetes.external_pods import requests, usage
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    Bind,
    Evict,
    PodOrders,
    ReportPending,
)
from carrel_scheduler.engines.kubernetes.external_pods.nodes import ClusterNodes
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import (
    Allocation,
    ExternalPod,
    ExternalPodIndex,
    ExternalTask,
    ExternalWorkload,
)
from carrel_scheduler.engines.kubernetes.external_pods.requests import (
    PendingRequests,
    asks_for,
    queued_event,
)
from carrel_scheduler.engines.kubernetes.external_pods.usage import (
    EVICTED,
    UNSCHEDULABLE,
    OverQuotaWatch,
)
from carrel_scheduler.engines.kubernetes.external_pods.workload_constraints import WorkloadVolumes
from carrel_scheduler.engines.kubernetes.external_pods.workload_pods import TaskPodIndex
from carrel_scheduler.engines.kubernetes.pods import labels
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping
from carrel_scheduler.engines.kubernetes.pods.placement.constraints import Places
from carrel_scheduler.quarantine import Quarantine

log = logging.getLogger(__name__)

RETURN_SECONDS: Final = 60.0
"""So long the next pod of an evicted one is awaited."""


def settle(turn: "ReconcilePass", workload: ExternalWorkload) -> None:
    """See the module."""
    for task in workload:
        _end(turn, workload, task)
    for task in workload:
        _leave(turn, workload, task)
    if workload.uid not in turn.book.workloads:
        _dequeue(turn, workload)
        return
    if not workload.holding:
        _ask(turn, workload)
    if workload.queued:
        for task in workload:
            _found(turn, workload, task)


def release(
    turn: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask, outcome: Outcome
) -> None:
    """The room of a task is free."""
    if task.place is None:
        return
    turn.state.apply(TaskReleased(workload.uid, task.index, outcome, turn.now))
    turn.row(workload, task, "pending" if outcome is Outcome.AGAIN else "ended")
    turn.left(task)
    task.place, task.leaving, task.sent, task.stuck_at = None, False, False, None
    if outcome is Outcome.AGAIN:
        workload.evicted_at = turn.now
    else:
        workload.reshaped = True
    if not workload.single and turn.stale_grace_s >= 0:
        turn.wake(turn.now + turn.stale_grace_s, workload)


def give_up(turn: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask) -> None:
    """The core is told that the room of a task is being freed."""
    if task.place is not None and not task.leaving:
        turn.state.apply(TaskReleasing(workload.uid, task.index))
        task.leaving = True
        grace_s = task.pod.grace_seconds if task.pod is not None else 0.0
        task.stuck_at = turn.now + grace_s + LATE_SECONDS
        turn.wake(task.stuck_at, workload)


def order(turn: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask) -> None:
    """Have the pod of a task bound to the place that the task holds."""
    if task.pod is None or task.place is None or task.sent or task.pod.node:
        return
    if not turn.is_counted(task):
        turn.count_anew(workload, task)
        return
    task.sent = True
    turn.order_binding(task.pod, workload.grouping, task.place)


def _end(turn: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask) -> None:
    """A task whose pod is over gives its room back; it waits for the next one or closes."""
    one = task.pod
    if one is not None and one.outcome is None and not (one.ending and not one.node):
        return
    if one is None and task.awaits_until is not None:
        if turn.now >= task.awaits_until:
            _close(turn, workload, task, Outcome.GONE)
        return
    outcome = one.outcome if one is not None else None
    if outcome is Outcome.SUCCEEDED:
        _close(turn, workload, task, outcome)
    elif _comes_again(workload, task):
        task.evicted = False
        release(turn, workload, task, Outcome.AGAIN)
        if one is not None:
            turn.book.remove_pod(one.ref.uid)
        if workload.single and turn.book.replace_pod(workload, task):
            return
        until = turn.now + RETURN_SECONDS
        turn.book.await_replacement(workload, task, until)
        turn.wake(until, workload)
    else:
        _close(turn, workload, task, outcome or Outcome.GONE)
    task.evicted = False


def _comes_again(workload: ExternalWorkload, task: ExternalTask) -> bool:
    """Whether a controller will make the next pod of a task that had a place."""
    if not workload.grouping.controlled or not workload.queued:
        return False
    return task.evicted or (not workload.single and task.place is not None)


def _close(
    turn: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask, outcome: Outcome
) -> None:
    release(turn, workload, task, outcome)
    turn.book.close(workload, task)
    workload.reshaped = True


def _leave(turn: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask) -> None:
    if task.pod is not None and task.pod.ending:
        give_up(turn, workload, task)
    if task.leaving and task.stuck_at is not None and task.stuck_at <= turn.now:
        turn.state.apply(TaskStuck(workload.uid, task.index))
        task.stuck_at = None
        log.warning("a pod of %s was told to stop and is still there", workload.uid)


def _ask(turn: "ReconcilePass", workload: ExternalWorkload) -> None:
    """A workload that holds nothing: in the core's queue if it can start, else not."""
    unknown = any(
        task.pod is not None
        and task.pod.node
        and not requests.knows_node(turn.state, task.pod.node)
        for task in workload.tasks
    )
    bound = any(task.pod is not None and task.pod.node for task in workload.tasks)
    if bound and not unknown and not workload.complete():
        _await_the_missing(turn, workload)
    elif unknown or not workload.complete() or turn.now < workload.not_before:
        _dequeue(turn, workload)
        return
    wanted = workload.asking()
    if workload.queued and not workload.reshaped and len(wanted) == len(workload.asked):
        return
    _dequeue(turn, workload)
    for index, task in enumerate(wanted):
        task.index, task.counted = index, task.request
    workload.asked, workload.reshaped = tuple(wanted), False
    turn.state.apply(queued_event(workload, wanted, turn.stale_grace_s))
    workload.queued = True
    turn.queued(workload)


def _await_the_missing(turn: "ReconcilePass", workload: ExternalWorkload) -> None:
    """A gang that is found running in part: the core is to see that some of it is missing."""
    for role in workload.grouping.roles:
        there = [task for task in workload.tasks if task.role == role.name]
        alike = next(iter(there or workload.tasks)).request
        for _ in range(role.least - len(there)):
            until = turn.now + RETURN_SECONDS
            workload.tasks.append(ExternalTask(role.name, awaits_until=until, request=alike))
            turn.wake(until, workload)
            workload.reshaped = True


def _dequeue(turn: "ReconcilePass", workload: ExternalWorkload) -> None:
    if workload.queued:
        turn.state.apply(WorkloadGone(workload.uid))
        workload.queued = False


def _found(turn: "ReconcilePass", workload: ExternalWorkload, task: ExternalTask) -> None:
    """A pod is bound: as ordered, or by somebody else; one that is not takes a held place."""
    one = task.pod
    if one is None:
        return
    if not one.node:
        order(turn, workload, task)
        return
    if task.place is not None and task.place.node == one.node:
        return
    if task not in workload.asked:
        turn.no_room(workload, task)
        return
    if task.place is not None:
        release(turn, workload, task, Outcome.AGAIN)
    at = min(one.started_at or turn.now, turn.now)
    devices = requests.place_found(turn.state, workload.uid, task.index, one, task.request, at)
    if devices is None:
        log.warning("no room is known on %s for pod %s, which is there", one.node, one.ref.name)
        turn.no_room(workload, task)
        return
    task.place, task.since = Allocation(one.node, devices), turn.now
    turn.row(workload, task, "running")
    _leave(turn, workload, task)


STALE_SECONDS: Final = 60.0
SAME_TOLD_SECONDS: Final = 30.0


def _nobody() -> None:
    """Nobody wants to hear that something changed."""


def _no_hands(orders: PodOrders) -> None:
    raise RuntimeError(f"nobody carries out {orders}")


class ReconcilePass:
    """What handlers and reconcile steps share.

    Args:
        access: to the reconciler.
        stale_grace_s: so long a gang may run with too few of its pods.
        places: what decides where pods may run beside the core.
        storage_claim: claim of every project that all its tasks use but workspaces; empty: none.
    """

    def __init__(
        self,
        access: ReconcilerAccess,
        stale_grace_s: float,
        places: Places,
        storage_claim: str,
    ) -> None:
        self.state = access.state
        self.book = ExternalPodIndex()
        self.own = TaskPodIndex()
        self.orders = PodOrders()
        self.places = places
        self.nodes = ClusterNodes(self.places.groups, access.withheld)
        self.asking = PendingRequests(self.places)
        self.own_volumes = WorkloadVolumes(self.places, storage_claim)
        self.quarantine = access.quarantine or Quarantine(lambda: self.now)
        self.draining = access.draining
        self.now = 0.0
        self.epoch = 0
        self.ready = False
        self.stale_grace_s = stale_grace_s
        self.notify: Callable[[], None] = _nobody
        self.execute: Callable[[PodOrders], None] = _no_hands
        self.tried: Counter[str] = Counter()
        self.told: dict[str, tuple[str, float]] = {}
        self.facts, self._queued = access.node_changed, access.queued
        self.borrowing = OverQuotaWatch()
        self.timers: list[tuple[float, int, ExternalWorkload]] = []
        self.numbers = itertools.count()

    def row(self, workload: ExternalWorkload, task: ExternalTask, phase: str) -> None:
        """Write down what a task holds from now on."""
        self.orders.rows.append(usage.row(workload, task, phase, now=self.now, epoch=self.epoch))

    def is_counted(self, task: ExternalTask) -> bool:
        """Whether the pod of a task asks for no more than its place was held for."""
        return task.pod is not None and asks_for(task.pod.manifest, task.counted)

    def count_anew(self, workload: ExternalWorkload, task: ExternalTask) -> None:
        """A pod asks for something else than was counted: it waits for room again.

        The core learns what a gang asks for only while the gang holds nothing: one that grew while
        others run goes by itself.
        """
        release(self, workload, task, Outcome.AGAIN)
        if not workload.single and workload.holding:
            until = self.now + RETURN_SECONDS
            self.wake(until, workload)
            home = self.book.split_from_gang(workload, task, until)
            if home is not None:
                self.asking.read(*home)
        else:
            workload.reshaped = True
            self.asking.read(workload, task)
        self.book.touch(workload)

    def order_binding(self, pod: ExternalPod, grouping: Grouping, place: Allocation) -> None:
        """Have a pod bound; from now on others see it there."""
        self.places.put_pod(pod.manifest, place.node)
        first = self.places.decide(pod.manifest, place.node)
        whom = labels.counted_annotation(grouping)
        self.orders.binds.append(
            Bind(pod.ref, place.node, place.devices, pod.manifest, first, whom)
        )

    def left(self, task: ExternalTask) -> None:
        """A task has no place any more."""
        one = task.pod
        if one is not None and not one.node:
            self.places.drop_pod(one.ref.uid)

    def wake(self, when: float, workload: ExternalWorkload) -> None:
        """Settle the workload again at that time."""
        heapq.heappush(self.timers, (when, next(self.numbers), workload))

    def queued(self, workload: ExternalWorkload) -> None:
        """The workload waits from now on."""
        self._queued(workload.uid)

    def no_room(self, workload: ExternalWorkload, task: ExternalTask) -> None:
        """A bound pod has no place in the core: it counts as a stranger."""
        one = task.pod
        self.book.close(workload, task)
        if one is not None:
            self.nodes.stranger(one.manifest)

    def give_way(
        self, workload: ExternalWorkload, task: ExternalTask, reason: str, message: str
    ) -> None:
        """Have the pod of a task give its place up; a place without a pod is free at once."""
        if task.place is None or task.leaving:
            return
        give_up(self, workload, task)
        task.evicted = True
        if task.pod is None:
            release(self, workload, task, Outcome.AGAIN)
            return
        one = task.pod
        self.tried[EVICTED] += 1
        self.orders.evictions.append(Evict(one.ref, reason, message, one.grace_seconds))

    def say(self, pod: ExternalPod, token: str, message: str) -> bool:
        """ReportPending a waiting pod why it waits; returns whether it did not know.

        The same kind of reason with other amounts is told again after a while only.
        """
        before, at = self.told.get(pod.ref.uid, ("", 0.0))
        again = before == token and 0.0 <= self.now - at < SAME_TOLD_SECONDS
        if pod.told == message or again:
            return False
        self.told[pod.ref.uid] = (token, self.now)
        self.tried[UNSCHEDULABLE] += 1
        self.orders.tells.append(ReportPending(pod.ref, token, message))
        return True
