"""Taking in anew one workload whose handling failed, as a restart would.

What the ledger recorded and what the engine lists are the truth; what was in memory is dropped.
Where even that fails, the workload is left out: its tasks are ended, and their devices are withheld
from everybody until the engine says that they have ended. A change of the object brings it back.
"""

import logging
import math
from typing import TYPE_CHECKING, Final

from carrel_scheduler.engines.contract import TaskPhase, TaskStatus
from carrel_scheduler.engines.core_state import purge
from carrel_scheduler.ledger.store import NotFound
from carrel_scheduler.workloads.faults.guarding import FATAL
from carrel_scheduler.workloads.faults.savepoints import Savepoint
from carrel_scheduler.workloads.lifecycle.phases import FINAL
from carrel_scheduler.workloads.reconcile import adoption
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges, Stop
from carrel_schema.objects import Workload

if TYPE_CHECKING:
    from carrel_scheduler.workloads.reconcile.reconciler import Reconciler

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 60.0
"""A workload is taken in anew at most once in so long."""


class Readmission:
    """The workloads of one loop whose handling failed."""

    def __init__(self, loop: "Reconciler") -> None:
        self._loop = loop
        self._due: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def damaged(self, uid: str) -> None:
        """Handling this workload failed; it is taken in anew after the turn."""
        if not uid or uid in self._due:
            return
        now = self._loop.clock()
        self._due[uid] = max(now, self._last.get(uid, -math.inf) + PAUSE_SECONDS)

    def forget(self, uid: str) -> None:
        """The workload has gone."""
        self._last.pop(uid, None)

    def set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        self._due = {uid: due - seconds for uid, due in self._due.items()}
        self._last = {uid: at - seconds for uid, at in self._last.items()}

    @property
    def due_at(self) -> float | None:
        """When the next is to be taken in; ``None`` for nobody."""
        return min(self._due.values(), default=None)

    async def run(self) -> None:
        """Take in anew all that are due."""
        if not self._due:
            return
        now = self._loop.clock()
        for uid in [uid for uid, due in self._due.items() if due <= now]:
            del self._due[uid]
            self._last[uid] = now
            with self._loop.quarantine.guard("message", uid, fatal=FATAL) as guard:
                await self._one(uid)
            if guard.failed:
                self.damaged(uid)

    async def _one(self, uid: str) -> None:
        loop = self._loop
        try:
            workload: Workload | None = await loop.ledger.get_by_uid(Workload, uid)
        except NotFound:
            workload = None
        tasks = [task for task in await loop.executor.listed() if task.id.workload_uid == uid]
        changes = loop.begin()
        purge(loop.state, uid)
        loop.cache.drop(uid)
        before = Savepoint(changes)
        with loop.quarantine.guard("workload", uid) as guard:
            if workload is not None and not _is_over(workload):
                adoption.take_over(changes, workload, tasks)
        if guard.failed:
            before.restore()
            purge(loop.state, uid)
            loop.cache.drop(uid)
        if loop.cache.get(uid) is None:
            self._end(changes, tasks)
        else:
            log.warning("workload %s was taken in anew after a failure", uid)
            loop.quarantine.release("task", uid)
            loop.quarantine.release("message", uid)
        await loop.finish(changes)

    def _end(self, changes: PassChanges, tasks: list[TaskStatus]) -> None:
        """End the tasks of a workload that cannot be taken in; nobody else gets their devices."""
        for task in tasks:
            if task.phase is TaskPhase.ENDED:
                changes.forgets.append(task.id)
            else:
                self._loop.withheld.keep(task, self._loop.state)
                changes.stops.append(Stop(task.id, 0.0))


def _is_over(workload: Workload) -> bool:
    return workload.status.phase in FINAL and not workload.spec.delete
