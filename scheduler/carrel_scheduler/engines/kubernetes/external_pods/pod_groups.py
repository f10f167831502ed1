"""External pods as workloads of the core: a gang, or one pod by itself.

A workload has *tasks*, those of the core. A task outlives its pod: when a pod was evicted and its
controller makes another, that one takes over the task and with it the place in the queue and the
reservation. What the core knows of a task (``allocation``, ``releasing``) is kept beside what the
cluster shows (``pod``); ``reconcile_pass`` brings the two together. The index only assigns pods to
tasks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from carrel_scheduler.core.events import Outcome
from carrel_scheduler.core.requests import NOTHING, Request
from carrel_scheduler.engines.kubernetes.pods.labels import GangRole, Grouping
from carrel_scheduler.engines.kubernetes.pods.types import Pod


@dataclass(frozen=True, slots=True)
class PodRef:
    """The identity of one pod: names may be reused, uids are not."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ExternalPod:
    """The last seen state of a pod.

    Attributes:
        manifest: the object as the cluster shows it.
        role: its role in a gang.
        node: where it was bound to; empty while it waits.
        devices: which GPUs of the node its binding names; ``None`` where it names none.
        slots: of the MIG instance that its binding names, as bits; 0 where it names none.
        gated: it has scheduling gates.
        ending: it is terminating.
        outcome: how it ended; ``None`` while it may still run.
        grace_seconds: how long it may take to end.
        started_at: when its node took it up; 0 while nobody knows.
        told: the reason in its condition, so that it is not written twice.
        refusal: why its group can not be understood, in words; empty when it can.
        awaits_group: its group does not exist yet.
    """

    ref: PodRef
    grouping: Grouping
    manifest: Pod
    role: str = ""
    node: str = ""
    devices: tuple[int, ...] | None = None
    slots: int = 0
    gated: bool = False
    ending: bool = False
    outcome: Outcome | None = None
    grace_seconds: float = 30.0
    started_at: float = 0.0
    told: str = ""
    refusal: str = ""
    awaits_group: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation of a task in the core; ``slots`` are those of its MIG instance, as bits."""

    node: str
    devices: tuple[int, ...]
    slots: int = 0


@dataclass(slots=True, eq=False)
class ExternalTask:
    """A task of an external workload.

    Attributes:
        index: the task's index in the core.
        pod: its pod; ``None`` while the next one is awaited.
        successor: the next pod, which came while ``pod`` still ends; it takes the task then.
        allocation: what the core holds for it.
        releasing: the core knows that it is being freed, and counts on it until ``stuck_at``.
        sent: whether the binding of the present pod was ordered.
        evicted: whether its pod is a victim.
        awaits_until: until when the next pod is awaited.
        since: when it was allocated.
        request: what its pod asks for, or the last one asked for.
        counted: what the core knows that it asks for; a pod that asks for another amount is not
            bound to an allocation for this.
        waits: why no node serves its pod, for reasons that the core does not know; in words.
        checked: what is placed in the same current may come in its way.
        failures: bindings in a row that were refused.
    """

    role: str
    index: int = 0
    pod: ExternalPod | None = None
    successor: ExternalPod | None = None
    allocation: Allocation | None = None
    releasing: bool = False
    stuck_at: float | None = None
    sent: bool = False
    evicted: bool = False
    awaits_until: float | None = None
    since: float = 0.0
    request: Request = NOTHING
    counted: Request = NOTHING
    waits: str = ""
    checked: bool = False
    failures: int = 0

    @property
    def ready(self) -> bool:
        """Whether any pod may start."""
        one = self.pod
        return (
            one is not None
            and not one.gated
            and not (self.waits and not one.node)
            and not (one.ending and not one.node)
            and one.outcome is None
        )


@dataclass(slots=True, eq=False)
class ExternalWorkload:
    """An external workload.

    Attributes:
        uid: the core's.
        single: one pod for itself.
        tasks: in the order of their indices once it is queued.
        queued: whether the core knows it.
        changed: its tasks are not those that the core knows.
        evicted_at: when it was last evicted.
        not_before: it is not queued again before this time.
        queued_tasks: the tasks that the core knows, by index.
        borrowed: it runs beyond its project's quota.
        why: the reason why it waits, as last written: token and sentence.
        gives_way: for whom it was evicted last, in a sentence.
        incomplete_since: since when too few of its pods are there; ``None``: that is not so.
    """

    uid: str
    grouping: Grouping
    single: bool
    tasks: list[ExternalTask] = field(default_factory=list)
    queued: bool = False
    changed: bool = False
    evicted_at: float | None = None
    not_before: float = 0.0
    queued_tasks: tuple[ExternalTask, ...] = ()
    borrowed: bool = False
    why: tuple[str, str] = ("", "")
    gives_way: str = ""
    incomplete_since: float | None = None

    @property
    def holding(self) -> bool:
        """Whether the core holds any allocation of the workload."""
        return any(task.allocation is not None for task in self.tasks)

    @property
    def name(self) -> str:
        """The name that users see."""
        first = self.tasks[0].pod if self.single and self.tasks else None
        return first.ref.name if first is not None else self.grouping.name

    def complete(self) -> bool:
        """Whether enough pods exist, or are being recreated, to start."""
        if self.single:
            return any(_counts(task) for task in self.tasks)
        return not any(self.missing())

    def missing(self) -> Iterator[tuple[GangRole, int]]:
        """The roles of a gang of which pods are missing, and how many."""
        for role in self.grouping.roles:
            there = sum(1 for task in self.tasks if task.role == role.name and _counts(task))
            if there < role.least:
                yield role, role.least - there

    def asking(self) -> list[ExternalTask]:
        """The tasks that the core is to know, in the order of their roles, then names."""
        wanted = [task for task in self.tasks if _counts(task)]
        if self.single:
            return wanted
        ranks = {role.name: rank for rank, role in enumerate(self.grouping.roles)}
        return sorted(wanted, key=lambda task: (ranks[task.role], _name(task)))

    def at(self, index: int) -> ExternalTask:
        """The task of a task of the core."""
        return self.queued_tasks[index]

    def __iter__(self) -> Iterator[ExternalTask]:
        """The tasks."""
        return iter(tuple(self.tasks))


def _counts(task: ExternalTask) -> bool:
    return task.ready or (task.pod is None and task.awaits_until is not None)


def _is(pod: ExternalPod | None, uid: str) -> bool:
    return pod is not None and pod.ref.uid == uid


def _gives_way(task: ExternalTask) -> bool:
    """Whether the pod of a task ends in time, so that the next one takes its place."""
    one = task.pod
    if one is None or task.allocation is None or task.successor is not None:
        return False
    stuck = task.releasing and task.stuck_at is None
    return one.outcome is Outcome.FAILED or (one.ending and one.outcome is None and not stuck)


def _name(task: ExternalTask) -> str:
    return "" if task.pod is None else task.pod.ref.name


class ExternalPodIndex:
    """The external pods by workload and task; the core follows in ``reconcile_pass``.

    Attributes:
        workloads: by the core's uid.
        without_queue: pods whose project does not exist, by project and uid of the pod.
        tombstones: uids of pods that count as deleted although the cluster still shows them.
        touched: workloads to be reconciled.
    """

    def __init__(self) -> None:
        self.workloads: dict[str, ExternalWorkload] = {}
        self.without_queue: dict[str, dict[str, ExternalPod]] = {}
        self.tombstones: set[str] = set()
        self.touched: dict[str, ExternalWorkload] = {}
        self._by_pod: dict[str, tuple[ExternalWorkload, ExternalTask]] = {}
        self._gangs: dict[tuple[str, str, str], ExternalWorkload] = {}
        self._awaiting: dict[str, dict[str, ExternalWorkload]] = {}
        self._single: dict[str, dict[str, ExternalWorkload]] = {}

    def task_of(self, pod_uid: str) -> tuple[ExternalWorkload, ExternalTask] | None:
        """The workload and task of a pod."""
        return self._by_pod.get(pod_uid)

    def touch(self, workload: ExternalWorkload) -> None:
        """Have a workload reconciled in this pass."""
        self.touched[workload.uid] = workload

    def add(self, pod: ExternalPod) -> tuple[ExternalWorkload, ExternalTask]:
        """Create or reuse a task for a new pod."""
        grouping = pod.grouping
        workload, task = self._gang_task(pod) if grouping.is_gang else self._single_task(pod)
        if task.pod is not None:
            task.successor = pod
        else:
            task.pod, task.awaits_until = pod, None
            task.sent = task.evicted = False
        self._by_pod[pod.ref.uid] = (workload, task)
        self.touch(workload)
        return workload, task

    def update(self, pod: ExternalPod) -> tuple[ExternalWorkload, ExternalTask]:
        """Update a task's pod."""
        workload, task = self._by_pod[pod.ref.uid]
        if _is(task.successor, pod.ref.uid):
            task.successor = pod
        else:
            task.pod = pod
        self.touch(workload)
        return workload, task

    def remove_pod(self, pod_uid: str) -> tuple[ExternalWorkload, ExternalTask] | None:
        """Handle a deleted pod; its task stays."""
        home = self._by_pod.pop(pod_uid, None)
        if home is not None and _is(home[1].successor, pod_uid):
            home[1].successor = None
        elif home is not None:
            home[1].pod = None
            home[1].sent = False
            self.touch(home[0])
        return home

    def promote(self, task: ExternalTask) -> bool:
        """Let the pod that came early have a task that is free now; ``False`` without one."""
        if task.successor is None:
            return False
        task.pod, task.successor, task.awaits_until = task.successor, None, None
        return True

    def take_successor(self, task: ExternalTask) -> ExternalPod | None:
        """The pod that came early, which gets another task: this one is not to be waited for."""
        one, task.successor = task.successor, None
        if one is not None:
            self._by_pod.pop(one.ref.uid, None)
        return one

    def await_replacement(
        self, workload: ExternalWorkload, task: ExternalTask, until: float
    ) -> None:
        """The next pod of this task is awaited."""
        task.awaits_until = until
        if workload.single:
            self._awaiting.setdefault(workload.grouping.uid, {})[workload.uid] = workload

    def replace_pod(self, workload: ExternalWorkload, task: ExternalTask) -> bool:
        """Let a pod that came before this task was free have it; returns whether there is one."""
        for other in self._single.get(workload.grouping.uid, {}).values():
            waiting = other.tasks[0]
            one = waiting.pod
            if other is workload or one is None or one.node or waiting.allocation or waiting.sent:
                continue
            if one.ending or one.outcome is not None or waiting.role != task.role:
                continue
            if belongs_to(other.grouping) != belongs_to(workload.grouping):
                continue
            self.touch(other)
            self.close(other, waiting)
            self._by_pod[one.ref.uid] = (workload, task)
            task.pod, task.awaits_until, task.sent = one, None, False
            return True
        return False

    def close(self, workload: ExternalWorkload, task: ExternalTask) -> None:
        """A task is not wanted any more."""
        if task.pod is not None:
            self._by_pod.pop(task.pod.ref.uid, None)
        workload.tasks.remove(task)
        self._no_longer_awaiting(workload)
        if not workload.tasks:
            self.workloads.pop(workload.uid, None)
            self._no_longer_single(workload)
            if self._gangs.get(belongs_to(workload.grouping)) is workload:
                del self._gangs[belongs_to(workload.grouping)]

    def split_from_gang(
        self, workload: ExternalWorkload, task: ExternalTask, until: float
    ) -> tuple[ExternalWorkload, ExternalTask] | None:
        """Let the pod of a task go by itself; the task waits for another one."""
        pod = task.pod
        if pod is None:
            return None
        self.remove_pod(pod.ref.uid)
        self.await_replacement(workload, task, until)
        own, single = self._new_single(pod)
        single.pod = pod
        self._by_pod[pod.ref.uid] = (own, single)
        self.touch(own)
        return own, single

    def _single_task(self, pod: ExternalPod) -> tuple[ExternalWorkload, ExternalTask]:
        for workload in self._awaiting.get(pod.grouping.uid, {}).values():
            if workload.grouping == pod.grouping and workload.tasks[0].role == pod.role:
                self._no_longer_awaiting(workload)
                return workload, workload.tasks[0]
        return self._new_single(pod)

    def _new_single(self, pod: ExternalPod) -> tuple[ExternalWorkload, ExternalTask]:
        task = ExternalTask(pod.role)
        workload = self.workloads[pod.ref.uid] = ExternalWorkload(
            pod.ref.uid, pod.grouping, single=True, tasks=[task]
        )
        self._single.setdefault(pod.grouping.uid, {})[workload.uid] = workload
        return workload, task

    def _gang_task(self, pod: ExternalPod) -> tuple[ExternalWorkload, ExternalTask]:
        """A task that waits for a pod of its role, or a new one; late pods go by themselves."""
        workload = self._gangs.get(belongs_to(pod.grouping))
        if workload is None:
            workload = self._new_gang(pod.grouping)
        for task in workload.tasks:
            if task.pod is None and task.role == pod.role:
                return workload, task
        for task in workload.tasks:
            if _gives_way(task) and task.role == pod.role:
                return workload, task
        if workload.holding:
            return self._new_single(pod)
        task = ExternalTask(pod.role)
        workload.tasks.append(task)
        workload.grouping = pod.grouping
        workload.changed = True
        return workload, task

    def _new_gang(self, grouping: Grouping) -> ExternalWorkload:
        uid = f"{grouping.uid}-gang"
        if uid in self.workloads:
            uid = f"{'-'.join(belongs_to(grouping))}-gang"
        workload = self._gangs[belongs_to(grouping)] = ExternalWorkload(uid, grouping, single=False)
        self.workloads[uid] = workload
        return workload

    def _no_longer_single(self, workload: ExternalWorkload) -> None:
        siblings = self._single.get(workload.grouping.uid)
        if siblings is not None:
            siblings.pop(workload.uid, None)
            if not siblings:
                del self._single[workload.grouping.uid]

    def _no_longer_awaiting(self, workload: ExternalWorkload) -> None:
        waiting = self._awaiting.get(workload.grouping.uid)
        if waiting is not None:
            waiting.pop(workload.uid, None)
            if not waiting:
                del self._awaiting[workload.grouping.uid]


def belongs_to(grouping: Grouping) -> tuple[str, str, str]:
    """The identity of a gang: pods naming a group of another project or user are another gang."""
    return grouping.uid, grouping.project, grouping.user
