"""Doing what was recorded: orders for the engine and the Hub, in the background.

Orders for one workload are carried out one after the other, those of different workloads side by
side. What comes of them reaches the loop as messages.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Coroutine, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from carrel_scheduler.engines.contract import (
    AlreadyStarted,
    Engine,
    EngineError,
    TaskId,
    TaskSpec,
    UnknownTask,
)
from carrel_scheduler.ledger.objects import Workload
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.workloads.book import Entry
from carrel_scheduler.workloads.cycle import Cycle, Start
from carrel_scheduler.workloads.launch import LaunchSettings, task_specs
from carrel_scheduler.workloads.messages import ClaimRefused, StartRefused

if TYPE_CHECKING:
    from carrel_scheduler.workloads.reconciler import Reconciler

log = logging.getLogger(__name__)
# Ended tasks are forgotten in one order a turn: it concerns nothing that still happens to them.
FORGETTING: Final = "forgetting"


class HubStarter(Protocol):
    """Starts a workspace through the Hub when its turn has come."""

    async def start_workspace(self, workload: Workload) -> None:
        """Ask the Hub; raises ``HubRefused``."""
        ...


class HubRefused(Exception):  # noqa: N818
    """The Hub did not start the workspace; the message says why."""


class Actor:
    """Carries out the orders of recorded turns."""

    def __init__(
        self, engine: Engine, ledger: Ledger, settings: LaunchSettings, hub: HubStarter
    ) -> None:
        self._engine = engine
        self._ledger = ledger
        self._settings = settings
        self._hub = hub
        self._orders: dict[str, deque[Coroutine[None, None, None]]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def act(self, cycle: Cycle, loop: "Reconciler") -> None:
        """Give out the orders of a turn; returns at once."""
        await self._give_starts(cycle.starts, loop)
        for stop in cycle.stops:
            self._spawn(stop.task.workload_uid, self._stop(stop.task, stop.grace_seconds))
        if cycle.forgets:
            self._spawn(FORGETTING, self._forget(tuple(cycle.forgets)))
        for uid in cycle.removed:
            self._spawn(uid, self._remove(uid))
        for uid in cycle.wake_hub:
            entry = loop.book.get(uid)
            if entry is not None:
                self._spawn(uid, self._wake(entry, loop))

    async def _give_starts(self, starts: Sequence[Start], loop: "Reconciler") -> None:
        if not starts:
            return
        facts = {name: node.facts for name, node in loop.nodes.items()}
        secrets = await self._ledger.secrets_of([start.uid for start in starts])
        for start in starts:
            entry = loop.book.get(start.uid)
            if entry is None:
                continue
            refusal = loop.ports.refusal(entry.workload.spec.routes)
            if refusal:
                for index in start.tasks:
                    loop.tell(StartRefused(entry.task_id(index), refusal))
            else:
                own = secrets.get(start.uid, {})
                specs = task_specs(entry, start.tasks, facts, own, self._settings)
                self._spawn(start.uid, self._start(specs, loop))

    async def idle(self) -> None:
        """Wait until every order given so far is carried out."""
        while self._running:
            await asyncio.gather(*self._running)

    async def close(self) -> None:
        """Drop what is under way; the next start finds out from the engine what became of it."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for orders in self._orders.values():
            for order in orders:
                order.close()
        self._orders.clear()

    def _spawn(self, uid: str, order: Coroutine[None, None, None]) -> None:
        """Have an order carried out after those for the same workload that came before."""
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

    async def _start(self, specs: list[TaskSpec], loop: "Reconciler") -> None:
        await asyncio.gather(*(self._start_one(spec, loop) for spec in specs))

    async def _start_one(self, spec: TaskSpec, loop: "Reconciler") -> None:
        try:
            await self._engine.start(spec)
        except AlreadyStarted:
            log.info("task %s was started before", spec.id)
        except EngineError as error:
            loop.tell(StartRefused(spec.id, str(error)))

    async def _stop(self, task: TaskId, grace_seconds: float) -> None:
        await _known(self._engine.stop(task, grace_seconds))

    async def _forget(self, tasks: Sequence[TaskId]) -> None:
        for task in tasks:
            try:
                await _known(self._engine.forget(task))
            except EngineError as error:
                log.warning("the record of task %s stays: %s", task, error)

    async def _remove(self, uid: str) -> None:
        await self._engine.remove_workload(uid)

    async def _wake(self, entry: Entry, loop: "Reconciler") -> None:
        try:
            await self._hub.start_workspace(entry.workload)
        except HubRefused as error:
            loop.tell(ClaimRefused(entry.uid, str(error)))


async def _known(order: Awaitable[None]) -> None:
    """An order about a task that the engine has already let go of needs nothing done."""
    try:
        await order
    except UnknownTask as error:
        log.debug("nothing to do: %s", error)
