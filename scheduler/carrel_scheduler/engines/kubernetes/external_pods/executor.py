"""Binder and evictor: carries out the orders about external pods, in the background.

Bindings go first and many at once; evictions beside them; notifications are limited to a few in a
second. History is written in bulk. Outcomes of bindings become events. An eviction that is refused
waits by itself for its next try, so however many are protected, others are carried out meanwhile.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.engines.kubernetes import device_claims, notifications
from carrel_scheduler.engines.kubernetes.binding import BindTarget, NotBound, bind, prepare
from carrel_scheduler.engines.kubernetes.device_claims import NotAllocated, NotPrepared
from carrel_scheduler.engines.kubernetes.eviction import Protected, evict
from carrel_scheduler.engines.kubernetes.external_pods.messages import (
    Bind,
    BindingFailed,
    Evict,
    EvictionRefused,
    ExternalEvent,
    Nominate,
    PodOrders,
    ReportEvent,
    ReportPending,
)
from carrel_scheduler.engines.kubernetes.notifications import PodNotice
from carrel_scheduler.engines.kubernetes.pods.devices.orders import AllocateClaim, ReleaseClaim
from carrel_scheduler.engines.kubernetes.pods.gpu_annotations import Share, share_of
from carrel_scheduler.engines.kubernetes.shared_gpus.instances import MigInstances
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import (
    binding_annotations,
    instance_annotations,
)
from carrel_scheduler.engines.kubernetes.shared_gpus.reservations import GpuReservations, HeldGpus
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Conflict, KubeError, TooManyRequests, Unavailable
from carrel_scheduler.ledger.records import Ledger, Transition
from carrel_schema.objects import Meta

log = logging.getLogger(__name__)

ROWS_SECONDS: Final = 0.5
EVICT_PAUSES: Final = Pauses(1.0, 15.0)
EVICT_TRIES: Final = 5
"""The retries of an eviction that is refused for now, before the reconciler is told."""
EVICT_AGAIN_SECONDS: Final = 60.0
"""The pause between tries after that."""
DEVICES_AWAITED: Final = "BindingConditionsPending"
"""The reason of Kubernetes' own scheduler in its event about the same."""
DEVICE_NOT_PREPARED: Final = "DeviceNotPrepared"
Notification = ReportPending | ReportEvent | Nominate


class BindingFenced(Exception):  # noqa: N818 - an outcome to end on
    """The API server refused a binding: another scheduler has the lease."""


@dataclass(frozen=True, slots=True)
class ExecutorLimits:
    """Limits of what runs at the same time.

    Attributes:
        bindings: on their way at the same time.
        evictions: the same.
        notifications_per_second: conditions and events written to pods.
        preparation_seconds: drivers may take so long to prepare devices of a pod's claims.
    """

    bindings: int = 32
    evictions: int = 16
    notifications_per_second: float = 5.0
    preparation_seconds: float = device_claims.PREPARATION_SECONDS


@dataclass(slots=True)
class ExecutorCounts:
    """Counts since the start, for metrics."""

    bound: int = 0
    failed: int = 0
    evicted: int = 0
    told: int = 0


class PodExecutor:
    """See the module. Give it orders, and run ``run`` beside the loop.

    Args:
        client: of the API server.
        ledger: where history goes.
        deliver: delivers events to the reconciler.
        now: epoch seconds.
        instance: the name of this process, for events.
        limits: see ``ExecutorLimits``.
        gpus: holds the GPUs that pods share; ``None``: none are shared.
        instances: makes MIG instances; ``None``: none are made.
        scales_up: autoscalers may add nodes for each pod that waits.
    """

    def __init__(
        self,
        client: KubeClient,
        ledger: Ledger,
        deliver: Callable[[ExternalEvents], None],
        *,
        now: Callable[[], float],
        instance: str,
        limits: ExecutorLimits = ExecutorLimits(),
        gpus: GpuReservations | None = None,
        instances: MigInstances | None = None,
        scales_up: bool = True,
    ) -> None:
        self.counts = ExecutorCounts()
        self.epoch = 0
        self._client, self._ledger, self._deliver = client, ledger, deliver
        self._now, self._instance, self._limits = now, instance, limits
        self._gpus, self._instances, self._scales_up = gpus, instances, scales_up
        self._group: asyncio.TaskGroup | None = None
        self._sharing = asyncio.Semaphore(limits.bindings)
        self._binds: deque[Bind] = deque()
        self._evictions: deque[Evict] = deque()
        self._releases: asyncio.Queue[ReleaseClaim] = asyncio.Queue()
        self._refusals: Counter[str] = Counter()
        self._notifications: dict[tuple[type, str], Notification] = {}
        self._rows: list[Transition] = []
        self._written: asyncio.Future[Sequence[Meta]] | None = None
        self._binding, self._evicting = asyncio.Semaphore(0), asyncio.Semaphore(0)
        self._notified, self._writing = asyncio.Event(), asyncio.Event()

    def __call__(self, orders: PodOrders) -> None:
        """Take orders; returns at once."""
        self._binds += orders.binds
        self._evictions += orders.evictions
        for release in orders.releases:
            self._releases.put_nowait(release)
        for _ in orders.binds:
            self._binding.release()
        for _ in orders.evictions:
            self._evicting.release()
        notice: list[Notification] = [
            *orders.pending_reports,
            *orders.event_reports,
            *orders.nominations,
        ]
        for one in notice:
            self._notify_soon(one)
        if orders.rows:
            self._rows += orders.rows
            self._writing.set()

    async def run(self) -> None:
        """Run until cancelled. Raises ``BindingFenced``, and errors of the ledger."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for _ in range(self._limits.bindings):
                group.create_task(self._bind_all())
            for _ in range(self._limits.evictions):
                group.create_task(self._evict_all())
            group.create_task(self._notify_all())
            group.create_task(self._release_all())
            group.create_task(self._write_rows())

    async def flush(self) -> None:
        """Write the history that is not written yet, to the end also of a call that is cancelled.

        What such a call had taken is neither lost nor written twice: the next one waits for it.
        """
        await self._finish_writing()
        rows, self._rows = self._rows, []
        if rows:
            writing = self._ledger.record(epoch=rows[-1].epoch, statuses=(), transitions=rows)
            self._written = asyncio.ensure_future(writing)
            await self._finish_writing()

    async def _finish_writing(self) -> None:
        if self._written is None:
            return
        try:
            await asyncio.shield(self._written)
        finally:
            if self._written.done():
                self._written = None

    async def _bind_all(self) -> None:
        while True:
            await self._binding.acquire()
            order = self._binds.popleft()
            if self._waits(order) and self._group is not None:
                # A node may take long to give a GPU, a driver to prepare one: that holds up no
                # other pod.
                self._group.create_task(self._carry_out(order))
            else:
                await self._carry_out(order)

    def _waits(self, order: Bind) -> bool:
        """Whether GPUs are to be held, freed or prepared before a pod is bound."""
        if any(claim.prepared_before for claim in order.claims):
            return True
        if self._gpus is None:
            return False
        shared = order.slots or share_of(order.seen.metadata.annotations) is not None
        return bool(shared or (order.devices and not self._gpus.is_free(order.node)))

    async def _carry_out(self, order: Bind) -> None:
        pod = order.pod
        try:
            for decision in order.first:
                await prepare(self._client, decision)
            claims = [await device_claims.allocate(self._client, one) for one in order.claims]
            await self._prepare(order, claims)
            await self._bind(order)
        except KubeError as error:
            self.counts.failed += 1
            passing = isinstance(error, Conflict | Unavailable | TooManyRequests)
            self._report(BindingFailed(pod, str(error), final=not passing))
        except NotBound as error:
            if error.fenced:
                raise BindingFenced(str(error)) from error
            self.counts.failed += 1
            self._report(BindingFailed(pod, str(error), error.final))
        except NotPrepared as error:
            self.counts.failed += 1
            self._notify_soon(ReportPending(pod, DEVICE_NOT_PREPARED, not_prepared(error)))
            self._report(BindingFailed(pod, str(error), final=False))
        except (EngineError, NotAllocated) as error:  # its GPUs cannot be held at present
            self.counts.failed += 1
            self._report(BindingFailed(pod, str(error), final=False))
        except Exception as error:
            log.exception("binding pod %s failed", pod.name)
            self.counts.failed += 1
            self._report(BindingFailed(pod, repr(error), final=False))
        else:
            self.counts.bound += 1

    async def _prepare(self, order: Bind, claims: Sequence[AllocateClaim]) -> None:
        """Wait until drivers have prepared the devices of a pod, which is told that it waits."""
        awaited = [one for one in claims if one.prepared_before]
        if awaited:
            told = f"It waits until its devices are prepared for node `{order.node}`."
            self._notify_soon(Nominate(order.pod, order.node))
            self._notify_soon(ReportEvent(order.pod, DEVICES_AWAITED, told))
        for one in awaited:
            seconds = self._limits.preparation_seconds
            await device_claims.await_preparation(self._client, one, seconds)

    async def _bind(self, order: Bind) -> None:
        """Bind a pod to the node of its GPUs, after preparing shared ones."""
        share, gpus = share_of(order.seen.metadata.annotations), self._gpus
        if gpus is None or not (share or order.slots):
            if order.devices and gpus is not None:
                await gpus.make_room(order.node)
            await bind(self._client, _target(order, {}), self.epoch)
            return
        async with gpus.hold(order.node, order.devices) as hold:
            said = await self._part(order, hold, share or Share())
            async with self._sharing:
                await bind(self._client, _target(order, said), self.epoch)
            hold.pod = order.seen.metadata

    async def _part(self, order: Bind, hold: HeldGpus, share: Share) -> Mapping[str, str]:
        """The annotations of a pod's part of the held GPUs: a share, or the MIG instance made."""
        if not order.slots:
            return binding_annotations(hold.gpus, share.milli, share.memory_mib)
        if self._instances is None:
            raise EngineError("GPUs are not divided here: whole GPUs are right")
        [gpu] = hold.gpus
        pod, profile = order.seen.metadata, order.mig_profile
        uuid = await self._instances.take(order.node, gpu, profile, order.slots, pod)
        hold.visible = (uuid,)
        return instance_annotations(gpu, uuid, order.slots)

    async def _release_all(self) -> None:
        """Take claims back from pods that were not bound; the first that fails is tried again."""
        while True:
            order, tries = await self._releases.get(), 0
            while True:
                try:
                    await device_claims.release(self._client, order)
                except (Unavailable, TooManyRequests):
                    await asyncio.sleep(EVICT_PAUSES.after(tries))
                    tries += 1
                    continue
                except KubeError as error:
                    log.warning("resource claim %s is not released: %s", order.claim, error)
                break

    async def _evict_all(self) -> None:
        while True:
            await self._evicting.acquire()
            order = self._evictions.popleft()
            pod = order.pod
            victim = PodNotice(pod.namespace, pod.name, pod.uid, order.reason, order.message)
            try:
                await evict(self._client, victim, order.grace_seconds, now=self._now)
            except Exception as error:  # noqa: BLE001 - tried again, and reported if that goes on
                self._refused(order, error)
            else:
                del self._refusals[pod.uid]
                self.counts.evicted += 1
                self._notify_soon(ReportEvent(pod, order.reason, order.message))

    def _refused(self, order: Evict, error: Exception) -> None:
        """Retry a refused eviction later; the pod stays a victim until it is gone."""
        pod, trace = order.pod, None if isinstance(error, Protected | KubeError) else error
        log.info("pod %s is not evicted yet: %s", pod.name, error, exc_info=trace)
        refusals, pause = self._refusals[pod.uid], EVICT_AGAIN_SECONDS
        self._refusals[pod.uid] += 1
        of_the_moment = isinstance(error, Protected | Conflict)
        if of_the_moment and refusals < EVICT_TRIES:
            pause = EVICT_PAUSES.after(refusals)
        else:
            self._report(EvictionRefused(pod, str(error)))
        asyncio.get_running_loop().call_later(pause, self._evict_again, order)

    def _evict_again(self, order: Evict) -> None:
        self._evictions.append(order)
        self._evicting.release()

    def _notify_soon(self, notification: Notification) -> None:
        self._notifications[type(notification), notification.pod.uid] = notification
        self._notified.set()

    async def _notify_all(self) -> None:
        while True:
            await self._notified.wait()
            if not self._notifications:
                self._notified.clear()
                continue
            key = next(iter(self._notifications))
            await self._notify(self._notifications.pop(key))
            await asyncio.sleep(1.0 / self._limits.notifications_per_second)

    async def _notify(self, order: Notification) -> None:
        pod = order.pod
        try:
            if isinstance(order, Nominate):
                notice = PodNotice(pod.namespace, pod.name, pod.uid, "", "")
                await notifications.nominate(self._client, notice, order.node)
                return
            notice = PodNotice(pod.namespace, pod.name, pod.uid, order.token, order.message)
            if isinstance(order, ReportEvent):
                now = self._now()
                await notifications.record_event(
                    self._client, notice, now=now, instance=self._instance
                )
            else:
                await notifications.report_pending(
                    self._client,
                    notice,
                    now=self._now(),
                    instance=self._instance,
                    scales_up=self._scales_up,
                )
            self.counts.told += 1
        except KubeError as error:
            log.info("pod %s did not get its condition: %s", pod.name, error)
        except Exception:
            log.exception("pod %s did not get its condition", pod.name)

    async def _write_rows(self) -> None:
        while True:
            await self._writing.wait()
            self._writing.clear()
            await self.flush()
            await asyncio.sleep(ROWS_SECONDS)

    def _report(self, news: ExternalEvent) -> None:
        self._deliver(ExternalEvents((news,)))


def not_prepared(error: NotPrepared) -> str:
    """What a pod is told whose devices were not prepared."""
    return f"It was not started, and waits again: {error}."


def _target(order: Bind, gpus: Mapping[str, str]) -> BindTarget:
    pod = order.pod
    return BindTarget(
        pod.namespace,
        pod.name,
        pod.uid,
        order.node,
        order.devices,
        order.seen,
        order.counted,
        gpus,
    )
