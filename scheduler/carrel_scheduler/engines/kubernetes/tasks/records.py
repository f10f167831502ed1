"""The existing tasks, from a watch of their pods.

Nothing is kept that the API server does not know, but for the ends of pods that somebody took away
before the scheduler knew: those are listed until they are forgotten. A pod without a node is no
task yet: a start that was interrupted there is done again.
"""

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator

import msgspec

from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.engines.kubernetes.tasks import status as words
from carrel_scheduler.engines.kubernetes.tasks.settings import FORGOTTEN
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.feed import Feed, until_synced
from carrel_scheduler.kube.reflector import ChangeKind, WatchChange
from carrel_scheduler.kube.resources import PODS
from carrel_schema import names


class Record(msgspec.Struct, frozen=True):
    """A task, its pod as last seen, and its status."""

    pod: TaskPod
    status: TaskStatus


class Records:
    """The tasks that have not been forgotten.

    Args:
        client: of the API server.
        clock: epoch seconds.
        image_timeout: seconds that a task may wait for its image.
        changed: called with each change of a task.
        give_up: called with a task that will not begin, and why.
        ended: called with the uid of a pod of which nothing runs any more.
    """

    def __init__(
        self,
        client: KubeClient,
        clock: Callable[[], float],
        image_timeout: float,
        changed: Callable[[TaskStatus], None],
        give_up: Callable[[TaskId, str], None],
        ended: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._feed = Feed(client, PODS, TaskPod, label_selector=f"{names.TASK},!{FORGOTTEN}")
        self._clock, self._image_timeout = clock, image_timeout
        self._changed, self._give_up, self._ended = changed, give_up, ended
        self._records: dict[TaskId, Record] = {}
        self._of_pods: dict[str, TaskId] = {}
        self._asked: dict[TaskId, str] = {}
        self._timers: dict[TaskId, asyncio.TimerHandle] = {}
        self._unbound: dict[TaskId, TaskPod] = {}
        self._changes = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._synced = asyncio.Event()

    async def open(self) -> None:
        """List all existing tasks, and follow their changes from now on."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        await until_synced(self._synced, self._listening)

    async def _listen(self) -> None:
        async for change in self._feed.subscribe():
            self._take_in(change)

    def _take_in(self, change: WatchChange[TaskPod]) -> None:
        if change.kind is ChangeKind.SYNCED:
            self._synced.set()
        elif change.kind is ChangeKind.DELETED:
            self._gone(change.object)
        else:
            self.take(change.object)

    def take(self, pod: TaskPod) -> None:
        """Handle the present state of a pod."""
        if pod.ended:
            self._ended(pod.metadata.uid)
        task = pod.task
        if task is None or FORGOTTEN in pod.metadata.labels or self._is_another(task, pod):
            return
        if not pod.spec.node_name:
            self._unbound[task] = pod
            self.wake()
            if not pod.metadata.deletion_timestamp:
                return
        else:
            self._unbound.pop(task, None)
        asked, now = self._asked.get(task, ""), self._clock()
        self._put(task, Record(pod, words.read(pod, task, now, asked=asked)))
        self._look_again(task, pod)
        why = "" if asked else words.start_failure(pod, now, self._image_timeout)
        if why:
            self._give_up(task, why)

    def _is_another(self, task: TaskId, pod: TaskPod) -> bool:
        """Whether somebody gave a second pod the label of a task that has its own."""
        known = self._records.get(task)
        return (
            known is not None
            and known.pod.metadata.uid != pod.metadata.uid
            and known.status.phase is not TaskPhase.ENDED
        )

    def _gone(self, pod: TaskPod) -> None:
        self._ended(pod.metadata.uid)
        task = pod.task
        if task is not None:
            self._unbound.pop(task, None)
        if task is None or task not in self._records:
            return
        known = self._records[task]
        if known.pod.metadata.uid != pod.metadata.uid:
            return
        if FORGOTTEN in pod.metadata.labels or known.status.phase is TaskPhase.ENDED:
            if not known.status.lost:
                self.drop(task)
            return
        asked = self._asked.get(task, "")
        self._put(task, Record(pod, words.gone(pod, task, self._clock(), asked=asked)))

    def _put(self, task: TaskId, record: Record) -> None:
        before = self._records.get(task)
        self._records[task] = record
        if before is not None and before.pod.metadata.uid != record.pod.metadata.uid:
            self._unname(before.pod)
        for name in _names_of(record.pod):
            self._of_pods[name] = task
        if before is None or before.status != record.status:
            ran = _ran(record.status)
            if ran is not None and (before is None or before.status.phase is TaskPhase.STARTING):
                self._changed(ran)
            self._changed(record.status)
        self.wake()

    def _look_again(self, task: TaskId, pod: TaskPod) -> None:
        """Read a pod again from which no event may come: its node may be gone."""
        old = self._timers.pop(task, None)
        if old is not None:
            old.cancel()
        when = words.look_again_at(pod, self._image_timeout)
        if when is not None and when > (now := self._clock()):
            loop = asyncio.get_running_loop()
            self._timers[task] = loop.call_later(when - now, self._again, task)

    def _again(self, task: TaskId) -> None:
        record = self._records.get(task)
        if record is not None:
            self.take(record.pod)

    def wake(self) -> None:
        """Wake everybody who waits for a change."""
        self._changes.set()
        self._changes = asyncio.Event()

    async def next_change(self) -> None:
        """Wait until anything changes."""
        await self._changes.wait()

    def asked(self, task: TaskId, why: str) -> None:
        """Record that the engine has requested the end of the task."""
        self._asked.setdefault(task, why)

    def get(self, task: TaskId) -> Record | None:
        """The record of a task."""
        return self._records.get(task)

    def task_of(self, pod: str) -> TaskId | None:
        """The task of a pod, by its uid or by ``namespace/name``."""
        return self._of_pods.get(pod)

    def _unname(self, pod: TaskPod) -> None:
        for name in _names_of(pod):
            self._of_pods.pop(name, None)

    def unbound(self, task: TaskId) -> TaskPod | None:
        """The pod of a task that is not bound to a node yet."""
        return self._unbound.get(task)

    def statuses(self) -> list[TaskStatus]:
        """The statuses of all tasks."""
        return [record.status for record in self._records.values()]

    def pods_on(self, nodes: Container[str]) -> Iterator[TaskPod]:
        """The pods of tasks that have not ended on these nodes."""
        for record in self._records.values():
            if record.pod.spec.node_name in nodes and record.status.phase is not TaskPhase.ENDED:
                yield record.pod

    def drop(self, task: TaskId) -> None:
        """Remove a task."""
        known = self._records.pop(task, None)
        if known is not None:
            self._unname(known.pod)
        self._asked.pop(task, None)
        timer = self._timers.pop(task, None)
        if timer is not None:
            timer.cancel()
        self.wake()

    def drop_all(self, tasks: Iterable[TaskId]) -> None:
        """Drop several tasks."""
        for task in tasks:
            self.drop(task)

    async def listening(self) -> None:
        """Watch the records; never returns, raises the error that ends the watch."""
        await self.open()
        if self._listening is not None:
            await asyncio.shield(self._listening)
        raise RuntimeError("the watch of pods has ended")

    async def close(self) -> None:
        """End the watch."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        await self._feed.close()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        self.wake()


def _names_of(pod: TaskPod) -> tuple[str, str]:
    meta = pod.metadata
    return meta.uid, f"{meta.namespace}/{meta.name}"


def _ran(ended: TaskStatus) -> TaskStatus | None:
    """The running status of a task whose node reports only its end because it came so soon."""
    if ended.phase is not TaskPhase.ENDED or not ended.started_at:
        return None
    return msgspec.structs.replace(
        ended,
        phase=TaskPhase.RUNNING,
        ended_at=0.0,
        exit_code=None,
        signal=0,
        message="",
        lost=False,
    )
