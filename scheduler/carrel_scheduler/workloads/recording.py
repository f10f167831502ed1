"""Making a turn durable: one transaction, retried when a newer specification got in between.

What somebody removed by force meanwhile is left out of it.
"""

from collections.abc import Sequence
from typing import Protocol

from carrel_scheduler.ledger.objects import Meta, Workload
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import Conflict, NotFound
from carrel_scheduler.workloads.book import Entry
from carrel_scheduler.workloads.cycle import Cycle
from carrel_scheduler.workloads.messages import Message, SpecRead, Vanished


class Listener(Protocol):
    """Who wants to hear what was recorded."""

    def tell(self, message: Message) -> None:
        """Hand a message to the loop."""
        ...

    def publish(self, kind: str, workload: Workload) -> None:
        """Tell the event stream of a workload as it is now."""
        ...


class Recorder:
    """Writes turns to the ledger."""

    def __init__(self, ledger: Ledger, listener: Listener) -> None:
        self._ledger = ledger
        self._listener = listener

    async def record(self, cycle: Cycle) -> int:
        """Write a turn's changes, or nothing. Raises ``Fenced``.

        Returns the latest version that came of it, 0 when none did.
        """
        removed = [entry for uid in cycle.removed if (entry := cycle.book.get(uid)) is not None]
        leaving = {entry.uid for entry in removed}
        changed = [entry for uid, entry in cycle.dirty.items() if uid not in leaving]
        if not changed and not removed and not cycle.decisions and not cycle.transitions:
            return 0
        stored = await self._write(cycle, changed, removed)
        for entry, meta in stored:
            entry.workload.meta = meta
            self._listener.publish("workload", entry.workload)
        for entry in removed:
            self._listener.publish("deleted", entry.workload)
        return max((meta.resource_version for _, meta in stored), default=0)

    async def _write(
        self, cycle: Cycle, changed: list[Entry], removed: list[Entry]
    ) -> Sequence[tuple[Entry, Meta]]:
        while True:
            there = [entry for entry in changed if not entry.gone]
            try:
                metas = await self._ledger.record(
                    epoch=cycle.epoch,
                    statuses=[entry.workload for entry in there],
                    transitions=cycle.transitions,
                    decisions=cycle.decisions,
                    removed=[entry.workload for entry in removed],
                )
            except Conflict:
                await self._read_again([*there, *removed])
            except NotFound:
                if not await self._read_again(there):
                    raise
            else:
                return list(zip(there, metas, strict=True))

    async def _read_again(self, entries: list[Entry]) -> bool:
        """Take over newer specifications, to be followed in the next turn.

        Returns whether one of them was removed by force; its end is seen to in the next turn, too.
        """
        any_gone = False
        for entry in entries:
            try:
                fresh = await self._ledger.get_by_uid(Workload, entry.uid)
            except NotFound:
                any_gone = entry.gone = True
                self._listener.tell(Vanished(entry.uid))
                continue
            if fresh.meta.resource_version != entry.workload.meta.resource_version:
                entry.workload.meta, entry.workload.spec = fresh.meta, fresh.spec
                self._listener.tell(SpecRead(entry.uid))
        return any_gone
