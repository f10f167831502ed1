"""Reservations of a cluster: made with the first share of a GPU, removed with the last.

All that is known comes from one watch of pods: reservations, and the pods that use them, whose
bindings name them. So another scheduler, or the same one after a restart, goes on where this one
ended. While a pod is being started its GPUs are *held*, which no watch shows yet.

| a reservation | what follows |
|---|---|
| is used, or held | it stays |
| is neither | it is deleted |
| is being deleted by somebody else, or ended, or is gone | the pods that use it are evicted |

A GPU has one owner at any moment: a reservation, or a pod that was given all of it. The kubelet
gives GPUs by number, and the core counts them as if a reservation ended with its last share. So
what takes a GPU of a node, a whole one or a new reservation, waits there until reservations that
nobody uses are gone, and pods whose reservation is gone have ended (``make_room``).

A former leader that does not know yet that it leads no more must not delete what its successor
uses: a reservation is deleted in the version that was seen, and a new leader writes its epoch on
each one before it uses it; one with a later epoch is left alone.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.kubernetes.binding import BindTarget, NotBound, bind
from carrel_scheduler.engines.kubernetes.eviction import Protected, evict
from carrel_scheduler.engines.kubernetes.notifications import PodNotice
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta, Pod
from carrel_scheduler.engines.kubernetes.shared_gpus.known import (
    REMOVE_GRACE_SECONDS,
    KnownReservations,
    NodeReservations,
)
from carrel_scheduler.engines.kubernetes.shared_gpus.memory_parts import MemoryParts
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import (
    HeldGpu,
    ReservationSettings,
    epoch_of,
    gpu_of,
    manifest,
    name_of,
    refusal_of,
    waits_for,
)
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import AlreadyExists, Conflict, KubeError, NotFound
from carrel_scheduler.kube.feed import Feed, until_synced
from carrel_scheduler.kube.reflector import ChangeKind
from carrel_scheduler.kube.resources import PODS
from carrel_scheduler.node.contract import MemoryLimit
from carrel_schema.names import EPOCH, RESERVATIONS_NAMESPACE

log = logging.getLogger(__name__)
LOST: Final = "GpuReservationLost"
"""Reason of a pod that is evicted because its GPU may be given to others."""
AGAIN: Final = Pauses(0.5, 15.0)
"""Pauses between tries of what the cluster refuses."""
ROOM_SECONDS: Final = 60.0
CONFIRM_SECONDS: Final = 30.0


@dataclass(slots=True)
class HeldGpus:
    """The GPUs that are reserved for a starting pod.

    Attributes:
        gpus: in the order that was asked for.
        visible: UUIDs that the pod is told to see.
        pod: that was bound with them; ``None``: none was.
    """

    gpus: tuple[HeldGpu, ...]
    visible: tuple[str, ...]
    pod: ObjectMeta | None = None


@dataclass(slots=True)
class _BackgroundTasks:
    """Background tasks, one at a time for each key."""

    tasks: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def start(self, key: str, work: Callable[[], Coroutine[None, None, None]]) -> None:
        if key not in self.tasks:
            task = self.tasks[key] = asyncio.create_task(work())
            task.add_done_callback(lambda _: self.tasks.pop(key, None))

    async def close(self) -> None:
        for task in (tasks := list(self.tasks.values())):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class GpuReservations:
    """See the module.

    Args:
        client: of the API server.
        feed: of all pods.
        settings: of the pods that it makes.
        epoch: of the scheduler's leadership.
        now: epoch seconds.
    """

    def __init__(
        self,
        client: KubeClient,
        feed: Feed[Pod],
        settings: ReservationSettings,
        *,
        epoch: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        self._client, self._feed, self._settings = client, feed, settings
        self._epoch, self._now = epoch, now
        self._known, self._parts = KnownReservations(), MemoryParts()
        self._locks: dict[str, asyncio.Lock] = {}
        self._synced = asyncio.Event()
        self._background = _BackgroundTasks()
        self._listening: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def hold(self, node: str, devices: Sequence[int]) -> AsyncIterator[HeldGpus]:
        """Hold the GPUs at these places of a node while a pod that shares them is started.

        Raises:
            EngineError: they cannot be held; the message says why.
        """
        held, there = [name_of(node, index) for index in devices], self._known.of(node)
        there.held.update(held)
        try:
            gpus = await self._all_ready(node, devices)
            hold = HeldGpus(gpus, tuple(gpu.uuid for gpu in gpus))
            yield hold
            pod = hold.pod
            if pod is not None and self._known.bound(pod.uid, node, hold.gpus, hold.visible):
                self._background.start(f"confirm {pod.uid}", partial(self._confirm, pod))
        finally:
            there.held.subtract(held)
            self._tidy(there)

    def in_use(self, node: str) -> frozenset[str]:
        """UUIDs of GPUs and MIG instances that pods of a node were told to see."""
        return self._known.in_use(node)

    def memory_limits(self, node: str) -> tuple[MemoryLimit, ...]:
        """The parts of GPUs' memory that pods of a node have, those with claims included."""
        return self._parts.of(node)

    def is_free(self, node: str) -> bool:
        """Whether ``make_room`` has nothing to wait for."""
        return self._synced.is_set() and self._known.is_free(node)

    async def make_room(self, node: str) -> None:
        """Wait until no GPU of a node is held that the core counts as free.

        Raises:
            EngineError: that takes too long.
        """
        try:
            async with asyncio.timeout(ROOM_SECONDS):
                await self.open()
                if not self._known.is_free(node):
                    await self._until_free(node)
        except TimeoutError as error:
            raise EngineError(
                f"node {node}: GPUs that were shared are not free yet; it is tried again"
            ) from error

    def ended(self, pod: str) -> None:
        """A pod has ended, as another watch shows earlier: what follows from that may follow here.

        Whoever takes its place may ask for room before the watch of this module shows it.
        """
        if self._known.ended(pod):
            self._tidy_touched()

    async def open(self) -> None:
        """Know all that there are, and follow every change. Raises what ends the watch."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        await until_synced(self._synced, self._listening)

    async def run(self) -> None:
        """Follow pods until cancelled. Raises errors that end the watch."""
        await self.open()
        if self._listening is not None:
            await asyncio.shield(self._listening)

    async def close(self) -> None:
        """Stop; reservations stay."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.wait([self._listening])
        await self._background.close()

    # State

    async def _listen(self) -> None:
        subscription = self._feed.subscribe()
        while changes := await subscription.batch():
            for change in changes:
                if change.kind is ChangeKind.SYNCED:
                    self._synced.set()
                else:
                    gone = change.kind is ChangeKind.DELETED
                    self._known.take(change.object, gone=gone)
                    self._parts.take(change.object, gone=gone)
            if self._synced.is_set():
                self._tidy_touched()
        raise EngineError("the watch of pods has ended")

    async def _confirm(self, pod: ObjectMeta) -> None:
        """Ask for a pod that the watch does not show: it may have come and gone unseen."""
        while True:
            await asyncio.sleep(CONFIRM_SECONDS)
            if not self._known.is_unseen(pod.uid):
                return
            try:
                found = await self._client.get(PODS, pod.name, pod.namespace, type=Pod)
                there = found.metadata.uid == pod.uid and not found.ended
            except NotFound:
                there = False
            except KubeError as error:
                log.debug("pod %s is read again: %s", pod.name, error)
                continue
            if not there and self._known.is_unseen(pod.uid):
                self._known.never_was(pod.uid)
                self._tidy_touched()

    def _tidy_touched(self) -> None:
        touched, self._known.touched = self._known.touched, set()
        for key in touched:
            self._tidy(self._known.at(key))

    def _tidy(self, there: NodeReservations) -> None:
        """Carry out what follows from the state of a node, and wake the starts that wait for it."""
        if not self._synced.is_set():
            return
        for pod in there.lost_users():
            self._background.start(f"evict {pod.metadata.uid}", partial(self._evict, there, pod))
        for pod in there.pods.values():
            if there.is_unused(pod, self._epoch()):
                self._background.start(
                    f"remove {pod.metadata.uid}", partial(self._remove, there, pod)
                )
        there.wake()

    async def _until_free(self, node: str, name: str = "") -> None:
        """Wait until no pod keeps a GPU of a node that the core counts as free."""
        await self.open()
        there = self._known.of(node)
        while True:
            changed = there.changed
            if not there.is_in_the_way(name):
                return
            await changed.wait()

    # Holding

    async def _all_ready(self, node: str, devices: Sequence[int]) -> tuple[HeldGpu, ...]:
        """The GPUs of these devices, read at one moment."""
        found: dict[int, HeldGpu] = {}
        there = self._known.of(node)
        try:
            async with asyncio.timeout(self._settings.seconds):
                while missing := [one for one in devices if not there.is_held(found.get(one))]:
                    for index in missing:
                        found[index] = await self._ready_alone(node, index)
        except TimeoutError as error:
            index = next((one for one in devices if not there.is_held(found.get(one))), devices[0])
            name = name_of(node, index)
            pod = there.pods.get(name)
            why = "others end there first" if pod is None else waits_for(pod)
            raise EngineError(
                f"GPU {index} of {node} could not be held within {self._settings.seconds:g} s: "
                f"pod {RESERVATIONS_NAMESPACE}/{name}: {why}"
            ) from error
        except (KubeError, NotBound) as error:
            raise EngineError(f"GPUs of {node} cannot be held: {error}") from error
        return tuple(found[one] for one in devices)

    async def _ready_alone(self, node: str, index: int) -> HeldGpu:
        """Make the reservation of a place and wait for it; one start at a time."""
        async with self._locks.setdefault(name_of(node, index), asyncio.Lock()):
            return await self._ready(node, index)

    async def _ready(self, node: str, index: int) -> HeldGpu:
        """The GPU at a place, once it is held and this leader has answered for it."""
        await self.open()
        name, there = name_of(node, index), self._known.of(node)
        while True:
            changed, pod = there.changed, there.pods.get(name)
            if pod is None:
                await self._until_free(node, name)
                await self._make(node, index)
            elif refusal := refusal_of(pod):
                raise EngineError(f"node {node} did not take the pod that holds a GPU: {refusal}")
            elif there.leaves(pod):
                await changed.wait()
            elif not pod.spec.node_name:
                await self._bind(pod, node)
                await changed.wait()
            elif (gpu := gpu_of(pod)) is None:
                await changed.wait()
            elif isinstance(gpu, str):
                raise EngineError(f"GPU {index} of {node} cannot be shared: {gpu}")
            elif there.has_another(name, gpu):
                raise EngineError(
                    f"node {node} gives {gpu.uuid} to several pods: a device plugin that shares "
                    "GPUs by itself (time slicing) and shares of Carrel exclude each other"
                )
            elif epoch_of(pod) != self._epoch():
                await self._write_epoch(there, pod)
            else:
                return gpu

    async def _make(self, node: str, index: int) -> None:
        wanted, name = manifest(node, index, self._settings), name_of(node, index)
        there = self._known.of(node)
        try:
            there.note(await self._client.create(PODS, wanted, RESERVATIONS_NAMESPACE, Pod))
        except AlreadyExists:
            with suppress(NotFound):
                there.note(await self._client.get(PODS, name, RESERVATIONS_NAMESPACE, Pod))

    async def _bind(self, pod: Pod, node: str) -> None:
        meta = pod.metadata
        target = BindTarget(meta.namespace, meta.name, meta.uid, node, None)
        try:
            await bind(self._client, target, self._epoch())
        except NotBound as error:
            if not error.already:
                if meta.uid not in self._feed.objects:
                    # Its end may have been shown before its creation was answered.
                    self._known.of(node).drop(pod)
                raise

    async def _write_epoch(self, there: NodeReservations, pod: Pod) -> None:
        """Write this leader's epoch, so that no former leader can delete the reservation."""
        meta, changed = pod.metadata, there.changed
        body = {"metadata": {"uid": meta.uid, "annotations": {EPOCH: str(self._epoch())}}}
        try:
            there.note(await self._client.patch(PODS, meta.name, body, meta.namespace, type=Pod))
        except (Conflict, NotFound):
            await changed.wait()

    # Removing and evicting

    async def _remove(self, there: NodeReservations, pod: Pod) -> None:
        """Delete a reservation for as long as nobody uses it; returns once it is gone."""
        try:
            for pause in AGAIN:
                changed, found = there.changed, there.pods.get(pod.metadata.name)
                if found is None or not there.is_this(pod):
                    return
                if not there.is_unused(found, self._epoch()):
                    return
                there.removing.add(pod.metadata.uid)
                try:
                    await self._delete(found)
                except (NotFound, Conflict):
                    await changed.wait()  # it is another one by now, as the watch shows
                except KubeError as error:
                    log.warning("%s is not removed yet: %s", pod.metadata.name, error)
                    await asyncio.sleep(pause)
                else:
                    while there.is_this(pod):
                        await there.changed.wait()
                    return
        finally:
            there.removing.discard(pod.metadata.uid)
            there.wake()

    async def _delete(self, pod: Pod) -> None:
        """Delete a reservation if it is unchanged since it was read."""
        meta = pod.metadata
        await self._client.delete(
            PODS,
            meta.name,
            meta.namespace,
            uid=meta.uid,
            resource_version=meta.resource_version,
            # A node that waits already does not notice that it is to wait no longer.
            grace_seconds=0 if meta.deletion_timestamp else REMOVE_GRACE_SECONDS,
        )

    async def _evict(self, there: NodeReservations, pod: Pod) -> None:
        """Have a pod end whose GPU may be given to others; until it is ending, or has ended."""
        meta = pod.metadata
        text = "the pod that held its GPU is gone, so the GPU may be given to others"
        log.warning("pod %s/%s is evicted: %s", meta.namespace, meta.name, text)
        notice = PodNotice(meta.namespace, meta.name, meta.uid, LOST, text)
        for pause in AGAIN:
            user = there.users.get(meta.uid)
            if user is None or user.ending:
                return
            try:
                await evict(self._client, notice, pod.grace_seconds, now=self._now)
            except (Protected, KubeError) as error:
                log.warning("pod %s is not evicted yet: %s", meta.name, error)
            await asyncio.sleep(pause)
