"""Rebuilding one workload whose handling failed, as a restart would.

What the ledger recorded and what the engine lists are the truth; what was in memory is dropped.
Where even that fails, the workload is left out: its tasks are ended, and their devices are withheld
from everybody until the engine reports their ends. A change of the object brings it back.
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Final

from carrel_scheduler.engines.contract import TaskPhase, TaskStatus
from carrel_scheduler.engines.core_state import purge
from carrel_scheduler.quarantine import Quarantine
from carrel_scheduler.workloads.faults.guarding import Savepoint
from carrel_scheduler.workloads.lifecycle.phases import FINAL
from carrel_scheduler.workloads.nodes.devices import WithheldDevices
from carrel_scheduler.workloads.reconcile import adoption
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges, Stop
from carrel_schema.objects import Workload

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 60.0
"""A workload is rebuilt at most once in so long."""


class Rebuilds:
    """The workloads whose handling failed, and when each may be rebuilt."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def damaged(self, uid: str) -> None:
        """Handling this workload failed; it is rebuilt after the pass. "" is none."""
        if uid and uid not in self._due:
            last = self._last.get(uid, -math.inf)
            self._due[uid] = max(self._clock(), last + PAUSE_SECONDS)

    def forget(self, uid: str) -> None:
        """The workload has gone."""
        self._last.pop(uid, None)

    def set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        self._due = {uid: due - seconds for uid, due in self._due.items()}
        self._last = {uid: at - seconds for uid, at in self._last.items()}

    @property
    def due_at(self) -> float | None:
        """When the next is to be rebuilt; ``None`` for nobody."""
        return min(self._due.values(), default=None)

    def take_due(self) -> list[str]:
        """Hand over the uids that are to be rebuilt now."""
        if not self._due:
            return []
        now = self._clock()
        found = [uid for uid, due in self._due.items() if due <= now]
        for uid in found:
            del self._due[uid]
            self._last[uid] = now
        return found


def rebuild(
    changes: PassChanges,
    uid: str,
    workload: Workload | None,
    tasks: Sequence[TaskStatus],
    quarantine: Quarantine,
    withheld: WithheldDevices,
) -> None:
    """Drop a workload and take it over anew.

    Args:
        changes: of a pass of its own.
        uid: of the workload.
        workload: as recorded; ``None`` where it is gone.
        tasks: that the engine lists of it.
        quarantine: where it stays if that fails.
        withheld: keeps the devices of its tasks from others then.
    """
    purge(changes.state, uid)
    changes.cache.drop(uid)
    before = Savepoint(changes)
    with quarantine.guard("workload", uid) as guard:
        if workload is not None and (workload.status.phase not in FINAL or workload.spec.delete):
            adoption.take_over(changes, workload, tasks)
    if guard.failed:
        before.restore()
        purge(changes.state, uid)
        changes.cache.drop(uid)
    if changes.cache.get(uid) is not None:
        log.warning("workload %s was rebuilt after a failure", uid)
        quarantine.release("task", uid)
        quarantine.release("message", uid)
        return
    for task in tasks:
        if task.phase is TaskPhase.ENDED:
            changes.forgets.append(task.id)
        else:
            withheld.keep(task, changes.state)
            changes.stops.append(Stop(task.id, 0.0))
