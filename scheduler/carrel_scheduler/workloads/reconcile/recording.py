"""Recording a reconcile pass: one transaction, retried when a newer specification came between.

Objects that were removed by force meanwhile are left out of it, and so is the part of a workload
that cannot be written at all: it is set aside, and nothing of it is carried out.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import Conflict, NotFound
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.faults.guarding import FATAL
from carrel_scheduler.workloads.reconcile.events import LoopEvent, SpecRead, WorkloadDeleted
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges
from carrel_schema.objects import Meta, Workload

log = logging.getLogger(__name__)


class Recorder:
    """Writes passes to the ledger.

    Args:
        ledger: where they are written.
        quarantine: where workloads go whose part cannot be written.
        enqueue: takes events about specifications that were found newer, or gone.
        publish: tells the event stream of a workload as it is now.
        commit: measures the transaction within.
    """

    def __init__(
        self,
        ledger: Ledger,
        quarantine: Quarantine,
        enqueue: Callable[[LoopEvent], None],
        publish: Callable[[str, Workload], None],
        commit: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._ledger, self._quarantine = ledger, quarantine
        self._enqueue, self._publish, self._commit = enqueue, publish, commit

    async def record(self, changes: PassChanges) -> int:
        """Write a pass's changes, or nothing. Raises ``Fenced``.

        Returns the latest version that came of it, 0 when none did.
        """
        removed = [
            entry for uid in changes.removed if (entry := changes.cache.get(uid)) is not None
        ]
        leaving = {entry.uid for entry in removed}
        changed = [entry for uid, entry in changes.dirty.items() if uid not in leaving]
        if not changed and not removed and not changes.decisions and not changes.transitions:
            return 0
        try:
            stored = await self._write(changes, changed, removed)
        except FATAL:
            raise
        except Exception:
            log.exception(
                "a pass could not be recorded as a whole; it is recorded workload by workload"
            )
            stored, removed = await self._write_apart(changes, changed, removed)
        for entry, meta in stored:
            entry.workload.meta = meta
            self._publish("workload", entry.workload)
        for entry in removed:
            self._publish("deleted", entry.workload)
        return max((meta.resource_version for _, meta in stored), default=0)

    async def _write_apart(
        self, changes: PassChanges, changed: list[CachedWorkload], removed: list[CachedWorkload]
    ) -> tuple[list[tuple[CachedWorkload, Meta]], list[CachedWorkload]]:
        """Write each workload's part of the pass by itself; what cannot be written is set aside."""
        stored: list[tuple[CachedWorkload, Meta]] = []
        gone: list[CachedWorkload] = []
        uids = dict.fromkeys(entry.uid for entry in (*changed, *removed))
        uids |= dict.fromkeys(row.workload_uid for row in changes.transitions)
        uids |= dict.fromkeys(row.workload_uid for row in changes.decisions)
        for uid in uids:
            part = replace(
                changes,
                transitions=[row for row in changes.transitions if row.workload_uid == uid],
                decisions=[row for row in changes.decisions if row.workload_uid == uid],
            )
            leaving = [entry for entry in removed if entry.uid == uid]
            with self._quarantine.guard("record", uid, fatal=FATAL) as guard:
                stays = [entry for entry in changed if entry.uid == uid]
                stored += await self._write(part, stays, leaving)
                gone += leaving
            if guard.failed:
                changes.unrecorded.add(uid)
        return stored, gone

    async def _write(
        self, changes: PassChanges, changed: list[CachedWorkload], removed: list[CachedWorkload]
    ) -> Sequence[tuple[CachedWorkload, Meta]]:
        while True:
            there = [entry for entry in changed if not entry.gone]
            try:
                with self._commit():
                    metas = await self._ledger.record(
                        epoch=changes.epoch,
                        statuses=[entry.workload for entry in there],
                        transitions=changes.transitions,
                        decisions=changes.decisions,
                        removed=[entry.workload for entry in removed],
                    )
            except Conflict:
                await self._read_again([*there, *removed])
            except NotFound:
                if not await self._read_again(there):
                    raise
            else:
                return list(zip(there, metas, strict=True))

    async def _read_again(self, entries: list[CachedWorkload]) -> bool:
        """Take over newer specifications, to be followed in the next pass.

        Returns whether one of them was removed by force; its end is seen to in the next pass, too.
        """
        any_gone = False
        for entry in entries:
            try:
                fresh = await self._ledger.get_by_uid(Workload, entry.uid)
            except NotFound:
                any_gone = entry.gone = True
                self._enqueue(WorkloadDeleted(entry.uid))
                continue
            if fresh.meta.resource_version != entry.workload.meta.resource_version:
                entry.workload.meta, entry.workload.spec = fresh.meta, fresh.spec
                self._enqueue(SpecRead(entry.uid))
        return any_gone
