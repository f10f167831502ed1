"""MIG instances on GPUs of a cluster: what is wanted of the agents of nodes, and what they made.

A start that needs an instance leaves an order and waits. The agent of its node asks for orders
(nothing on a node listens): it is answered as soon as there is one, and tells with its next
question what became of it. An order stands until a result arrives or the start gives up, and is
told again with each question; the agent finds an instance that it made already. So neither side has
to remember anything: an agent that starts again is told again, and a scheduler that starts again
orders again.

What pods have, as their bindings say, is told with each order: no such instance is touched.
"""

import asyncio
import itertools
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import NotOnThisNode
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta
from carrel_scheduler.engines.kubernetes.shared_gpus.events import (
    Publish,
    discard,
    failed_for,
    failed_on,
    notices_of,
)
from carrel_scheduler.engines.kubernetes.shared_gpus.reservation import HeldGpu
from carrel_scheduler.node.contract import MigOrder, MigOrders, MigReport

ORDER_SECONDS: Final = 90.0
"""Seconds for which a start waits for its instance."""
ANSWER_SECONDS: Final = 10.0
"""Seconds after which an agent is answered that nothing is wanted."""
SILENT_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class _OpenOrder:
    """An instance that a start waits for."""

    order: MigOrder
    done: "asyncio.Future[str]"


@dataclass(slots=True)
class _NodeOrders:
    """The orders for one node, by id, and when its agent last asked."""

    open: dict[str, _OpenOrder] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    asked_at: float | None = None


class MigInstances:
    """See the module.

    Args:
        in_use: UUIDs of what pods of a node were told to see.
        publish: queues events about nodes and pods.
    """

    def __init__(
        self, in_use: Callable[[str], Collection[str]], publish: Publish = discard
    ) -> None:
        self._in_use, self._publish = in_use, publish
        self._nodes: dict[str, _NodeOrders] = {}
        self._numbers = itertools.count(1)

    async def take(
        self, node: str, gpu: HeldGpu, profile: str, slots: int, pod: ObjectMeta | None = None
    ) -> str:
        """The UUID of an instance of a GPU, found or made by the agent of its node.

        Where there is none, an event of ``pod`` says so.

        Raises:
            NotOnThisNode: there is none; the message says why.
        """
        try:
            return await self._take(node, gpu, profile, slots)
        except NotOnThisNode as error:
            if pod is not None:
                self._publish(failed_for(pod, str(error)))
            raise

    async def _take(self, node: str, gpu: HeldGpu, profile: str, slots: int) -> str:
        there = self._nodes.setdefault(node, _NodeOrders())
        number = f"{gpu.reservation}-{next(self._numbers)}"
        order = MigOrder(id=number, device=gpu.uuid, profile=profile, slots=slots)
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        there.open[number] = _OpenOrder(order, done)
        there.changed.set()
        try:
            async with asyncio.timeout(ORDER_SECONDS):
                return await done
        except TimeoutError as error:
            why = self._silence(there)
            self._publish(failed_on(node, order, why))
            raise NotOnThisNode(
                f"the MIG instance {profile} on GPU {gpu.uuid} of {node} was not made within"
                f" {ORDER_SECONDS:g} s: {why}"
            ) from error
        finally:
            del there.open[number]

    async def exchange(self, node: str, report: MigReport) -> MigOrders:
        """Take in what the agent of a node did, and answer what is wanted, as soon as there is."""
        there = self._nodes.setdefault(node, _NodeOrders())
        there.asked_at = asyncio.get_running_loop().time()
        for result in report.results:
            order = there.open.get(result.id)
            if order is None or order.done.done():
                continue
            for notice in notices_of(node, order.order, result):
                self._publish(notice)
            if result.uuid:
                order.done.set_result(result.uuid)
            else:
                why = result.error or "its agent names no instance"
                order.done.set_exception(NotOnThisNode(f"node {node}: {why}"))
        if not self._wanted(there):
            there.changed.clear()
            with suppress(TimeoutError):  # nothing is wanted, which the answer says
                async with asyncio.timeout(ANSWER_SECONDS):
                    await there.changed.wait()
        held = tuple(sorted(self._in_use(node)))
        wanted = self._wanted(there)
        return MigOrders(orders=tuple(msgspec.structs.replace(one, held=held) for one in wanted))

    def _wanted(self, there: _NodeOrders) -> list[MigOrder]:
        return [one.order for one in there.open.values() if not one.done.done()]

    def _silence(self, there: _NodeOrders) -> str:
        if there.asked_at is None:
            return "no agent that makes instances was heard of there (components/mig)"
        silent = asyncio.get_running_loop().time() - there.asked_at
        if silent > SILENT_SECONDS:
            return f"the agent of the node was last heard of {silent:.0f} s ago"
        return "the agent of the node has not done it yet"
