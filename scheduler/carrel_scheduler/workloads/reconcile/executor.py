"""The executor: carries out what was recorded, as orders to the engine and the Hub.

Orders run in the background: those of one workload one after the other, those of different
workloads side by side. Their results reach the reconciler as events.

No order is dropped because it failed: ending and removing tasks is repeated until it succeeds, and
a start that failed in an unforeseen way counts as refused only once the engine knows nothing of the
task.
"""

import asyncio
import logging
from collections import deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from typing import Final, Protocol

from carrel_scheduler.backoff import Pauses
from carrel_scheduler.engines.contract import (
    AlreadyStarted,
    Engine,
    EngineError,
    NotOnThisNode,
    TaskId,
    TaskPhase,
    TaskSpec,
    TaskStatus,
    UnknownTask,
)
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.workloads.launch.task_specs import LaunchSettings, Ready, get_ready
from carrel_scheduler.workloads.nodes.devices import NodeState
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.events import (
    ClaimRefused,
    LoopEvent,
    StartRefused,
    StopFailed,
    TaskSeen,
)
from carrel_scheduler.workloads.state.pass_changes import PassChanges, Stop
from carrel_schema.objects import ReasonInfo, Workload

log = logging.getLogger(__name__)
# All ended tasks of a pass are forgotten in one order: nothing else happens to them any more.
FORGETTING: Final = "forgetting"
NO_TRACE: Final = "no trace of it was found"
# Orders are repeated until the engine accepts them, as nobody else would carry them out.
PAUSES: Final = Pauses(0.5, 60.0)
SHOWN_FROM: Final = 2
"""The number of failures in a row from which the status shows why."""


class HubStarter(Protocol):
    """Starts the workspace of an allocated workload through the Hub."""

    async def start_workspace(self, workload: Workload) -> None:
        """Start a workspace through the Hub. Raises ``HubRefused``."""
        ...


class HubRefused(Exception):  # noqa: N818
    """The Hub did not start the workspace; the message has the cause."""


class Announcer(Protocol):
    """Writes planned evictions where other parts of the cluster read them."""

    async def announce(self, task: TaskId, why: ReasonInfo) -> None:
        """Announce an eviction; a failure is only logged."""
        ...


class Executor:
    """Carries out the orders of recorded passes.

    ``announcer``: if there is one, announces evictions before their tasks are ended.
    """

    def __init__(
        self, engine: Engine, ledger: Ledger, settings: LaunchSettings, hub: HubStarter
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._settings = settings
        self._hub = hub
        self.announcer: Announcer | None = None
        self._enqueue: Callable[[LoopEvent], None] = _not_connected
        self._clock: Callable[[], float] = float
        self._nodes: Mapping[str, NodeState] = {}
        self._orders: dict[str, deque[Coroutine[None, None, None]]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def connect(
        self,
        enqueue: Callable[[LoopEvent], None],
        clock: Callable[[], float],
        nodes: Mapping[str, NodeState],
    ) -> None:
        """Set the queue for the executor's events, the clock (epoch seconds) and the nodes."""
        self._enqueue, self._clock, self._nodes = enqueue, clock, nodes

    @asynccontextmanager
    async def getting_ready(
        self, changes: PassChanges
    ) -> AsyncIterator["asyncio.Task[Sequence[Ready]] | None"]:
        """Prepare what a pass starts while the block records it; to be given to ``act``."""
        if not changes.starts:
            yield None
            return
        facts = {name: node.facts for name, node in self._nodes.items()}
        work = get_ready(tuple(changes.starts), changes.cache, facts, self._ledger, self._settings)
        ready = asyncio.create_task(work)
        try:
            yield ready
        except BaseException:
            ready.cancel()
            raise

    async def act(
        self,
        changes: PassChanges,
        ready: "asyncio.Task[Sequence[Ready]] | None",
    ) -> None:
        """Give out the orders of a pass; returns at once."""
        if ready is not None:
            starts = [one for one in await ready if one.entry.uid not in changes.unrecorded]
            self._give_starts(changes, starts)
        for stop in changes.stops:
            self._engine.interrupt_start(stop.task)  # the stop waits for the end of the start
            self._spawn(stop.task.workload_uid, self._stop(stop))
        if changes.forgets:
            self._spawn(FORGETTING, self._forget(tuple(changes.forgets)))
        for uid in changes.removed:
            self._spawn(uid, self._remove(uid))
        for uid in changes.wake_hub:
            entry = changes.cache.get(uid)
            if entry is not None:
                self._spawn(uid, self._wake(entry))

    def _give_starts(self, changes: PassChanges, starts: Sequence[Ready]) -> None:
        for ready in starts:
            entry = ready.entry
            if changes.cache.get(entry.uid) is not entry:
                continue
            refusal, routes = ready.refusal, entry.workload.spec.routes
            if routes and not refusal:
                refusal = changes.ports.refusal(routes)
            if refusal:
                for index in ready.tasks:
                    self._enqueue(StartRefused(entry.task_id(index), refusal))
            else:
                self._spawn(_order_queue(entry), self._start(ready.specs))

    async def listed(self) -> Sequence[TaskStatus]:
        """The tasks that the engine lists."""
        return await self._engine.list()

    async def idle(self) -> None:
        """Wait until every order given so far is carried out."""
        while self._running:
            await asyncio.gather(*self._running)

    async def close(self) -> None:
        """Cancel what is under way; the next start asks the engine what became of it."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for orders in self._orders.values():
            for order in orders:
                order.close()
        self._orders.clear()

    def _spawn(self, uid: str, order: Coroutine[None, None, None]) -> None:
        """Start an order once the earlier ones of the same workload are done."""
        waiting = self._orders.get(uid)
        if waiting is not None:
            waiting.append(order)
            return
        self._orders[uid] = deque([order])
        task = asyncio.create_task(self._carry_out(uid))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _carry_out(self, uid: str) -> None:
        orders = self._orders[uid]
        while orders:
            try:
                await orders.popleft()
            except Exception:
                log.exception("an order for workload %s failed", uid)
        del self._orders[uid]

    async def _start(self, specs: Sequence[TaskSpec]) -> None:
        if len(specs) == 1:  # most have one task: it needs no task of the event loop to itself
            await self._start_one(specs[0])
            return
        await asyncio.gather(*(self._start_one(spec) for spec in specs))

    async def _start_one(self, spec: TaskSpec) -> None:
        try:
            await self._engine.start(spec)
        except AlreadyStarted:
            log.info("task %s was started before", spec.id)
        except EngineError as error:
            elsewhere = isinstance(error, NotOnThisNode)
            self._enqueue(StartRefused(spec.id, str(error), elsewhere))
        except Exception as error:
            log.exception("starting task %s failed", spec.id)
            text = f"starting it failed: {error!r}"
            self._spawn(f"start {spec.id}", self._undo_start(spec.id, text))

    async def _undo_start(self, task: TaskId, text: str) -> None:
        """Stop a task that may have been started; its allocation is free once it has ended."""
        try:
            await self._retry(f"ending task {task}", lambda: self._engine.stop(task, 0.0))
        except UnknownTask:
            self._enqueue(StartRefused(task, text))

    async def _stop(self, stop: Stop) -> None:
        if stop.why is not None and self.announcer is not None:
            await self.announcer.announce(stop.task, stop.why)
        try:
            await self._engine.stop(stop.task, stop.grace_seconds)
        except UnknownTask:
            self._enqueue(TaskSeen(_vanished(stop.task, self._clock())))
        except Exception as error:  # noqa: BLE001 - logged, and tried again
            _log_failed(f"ending task {stop.task}", error)
            # In an order of its own: other tasks of the workload are ended meanwhile.
            self._spawn(f"stop {stop.task}", self._stop_again(stop))

    async def _stop_again(self, stop: Stop) -> None:
        def show(text: str) -> None:
            self._enqueue(StopFailed(stop.task, text))

        async def end() -> None:
            await self._engine.stop(stop.task, stop.grace_seconds)

        await asyncio.sleep(PAUSES.first)
        try:
            await self._retry(f"ending task {stop.task}", end, show)
        except UnknownTask:
            self._enqueue(TaskSeen(_vanished(stop.task, self._clock())))

    async def _forget(self, tasks: Sequence[TaskId]) -> None:
        for task in tasks:
            try:
                await _known(self._engine.forget(task))
            except Exception as error:  # noqa: BLE001 - the next start forgets it
                _log_failed(f"dropping the record of task {task}", error)

    async def _remove(self, uid: str) -> None:
        await self._retry(
            f"removing what workload {uid} left", lambda: self._engine.remove_workload(uid)
        )

    async def _retry(
        self,
        doing: str,
        work: Callable[[], Awaitable[None]],
        show: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Call ``work`` until it succeeds. Raises ``UnknownTask``.

        ``show``: called with the error once it has lasted, and with "" after it is over.
        """
        shown = ""
        for number, pause in enumerate(PAUSES):
            try:
                await work()
            except UnknownTask:
                raise
            except Exception as error:  # noqa: BLE001 - logged, and tried again
                _log_failed(doing, error, pause)
                if number + 1 >= SHOWN_FROM and str(error) != shown:
                    shown = str(error)
                    show(shown)
                await asyncio.sleep(pause)
            else:
                break
        if shown:
            show("")

    async def _wake(self, entry: CachedWorkload) -> None:
        try:
            await self._hub.start_workspace(entry.workload)
        except HubRefused as error:
            self._enqueue(ClaimRefused(entry.uid, str(error)))


def _not_connected(event: LoopEvent) -> None:
    raise RuntimeError(f"the executor is not connected: {event}")


def _order_queue(entry: CachedWorkload) -> str:
    """The queue of orders in which the starts of a workload wait.

    A pod that somebody else makes may have to be waited for: a stop does not wait behind that.
    """
    return f"{entry.uid} (outside)" if entry.workload.spec.external else entry.uid


def _log_failed(doing: str, error: Exception, pause: float = PAUSES.first) -> None:
    trace = None if isinstance(error, EngineError) else error
    log.warning("%s failed, tried again in %g s: %s", doing, pause, error, exc_info=trace)


def _vanished(task: TaskId, now: float) -> TaskStatus:
    """The end of a task that the engine does not know: its end came already, or it is lost."""
    return TaskStatus(
        id=task, phase=TaskPhase.ENDED, node="", ended_at=now, message=NO_TRACE, lost=True
    )


async def _known(order: Awaitable[None]) -> None:
    """Carry out an order about a task; none is needed where the engine has forgotten it."""
    try:
        await order
    except UnknownTask as error:
        log.debug("nothing to do: %s", error)
