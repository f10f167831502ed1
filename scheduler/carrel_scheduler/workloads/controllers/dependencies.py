"""Work that is to start after other work: its specification names what it still waits for.

The watch of the ledger tells of every end. What has ended as it was to is taken off the list of
those that wait for it; once the list is empty, the reconciler queues the workload. What cannot be
met any more (it failed, or was deleted before it succeeded) is marked as unmet, and the reconciler
or the workload's controller ends the workload as failed; whoever waits for that one follows.
Work can only name what is there when it is submitted, so it never waits in a circle.
"""

import logging
from collections import defaultdict
from typing import Literal

import msgspec

from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.store import ChangeType, Expired, ObjectNotFound, VersionConflict
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.faults.guarding import FATAL
from carrel_schema.objects import Workload
from carrel_schema.sections import Dependency

log = logging.getLogger(__name__)


def still_waits(found: Workload | None, condition: str) -> bool | None:
    """Whether work is still to end; ``None``: it cannot end any more as the condition asks.

    Args:
        found: the work that is waited for; ``None`` when it is gone.
        condition: ``ok``: it succeeds; ``any``: it ends.
    """
    phase = "gone" if found is None else found.status.phase
    if phase == "succeeded":
        return False
    if phase in ("failed", "gone"):
        return False if condition == "any" else None
    return True


class Dependencies:
    """Releases work whose dependencies have ended.

    Args:
        ledger: of all work.
        quarantine: takes what cannot be processed.
    """

    def __init__(self, ledger: Ledger, quarantine: Quarantine) -> None:
        self._ledger, self._quarantine = ledger, quarantine
        self._waiting: dict[str, set[str]] = defaultdict(set)
        """Uids of those that wait, by the uid of what they wait for."""

    async def run(self) -> None:
        """Follow the ledger until cancelled."""
        while True:
            page = await self._ledger.list(Workload)
            for workload in page.items:
                await self._take(workload)
            try:
                async for change in self._ledger.watch(Workload, page.version):
                    await self._take(change.object, gone=change.type is ChangeType.DELETED)
            except Expired:
                continue
            return

    async def _take(self, workload: Workload, *, gone: bool = False) -> None:
        uid = workload.meta.uid
        with self._quarantine.guard("message", uid, fatal=FATAL):
            if workload.spec.blocked_by and not gone:
                for one in workload.spec.after:
                    self._waiting[one.uid].add(uid)
                await self._look(uid)
            if uid in self._waiting and (gone or still_waits(workload, "any") is False):
                for waiting in sorted(self._waiting.pop(uid)):
                    await self._look(waiting)

    async def _look(self, uid: str) -> None:
        """Update the list of dependencies for which a workload still waits."""
        while True:
            try:
                workload = await self._ledger.get_by_uid(Workload, uid)
            except ObjectNotFound:
                return
            spec = workload.spec
            after = [
                await self._judged(one) if one.name in spec.blocked_by else (one, False)
                for one in spec.after
            ]
            left = [one.name for one, blocks in after if blocks]
            judged = [one for one, _ in after]
            if left == spec.blocked_by and judged == spec.after:
                return
            spec.blocked_by, spec.after = left, judged
            try:
                await self._ledger.update(workload)
            except VersionConflict:
                continue
            return

    async def _judged(self, one: Dependency) -> tuple[Dependency, bool]:
        """A dependency with what became of it, and whether it still keeps the work waiting."""
        try:
            found = await self._ledger.get_by_uid(Workload, one.uid)
        except ObjectNotFound:
            found = None
        waits = still_waits(found, one.condition)
        if waits is None:
            why: Literal["failed", "deleted"] = "deleted" if found is None else "failed"
            return msgspec.structs.replace(one, unmet=why), True
        return one, waits
