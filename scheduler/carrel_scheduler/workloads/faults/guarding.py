"""Running single steps of a turn so that one that fails harms nothing but what it was about.

A step that raises is undone in its turn, its input is set aside, and the workload it was about, if
there is one, is taken in anew from what is recorded. Errors of the ledger are no such failure: they
end the process, and the next start recovers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.ledger.errors import LedgerClosed, LedgerNotUsable, LedgerUnavailable
from carrel_scheduler.ledger.records import Fenced
from carrel_scheduler.quarantine import Quarantine, Source
from carrel_scheduler.workloads.faults.savepoints import Savepoint
from carrel_scheduler.workloads.reconcile.events import (
    DepartmentChanged,
    DevicesSampled,
    LoopEvent,
    ProjectChanged,
    StartRefused,
    TaskSeen,
    UsedLately,
    Wake,
    WorkloadChanged,
)

if TYPE_CHECKING:
    from carrel_scheduler.workloads.faults.rebuilding import Readmission
    from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges

FATAL: Final = (Fenced, LedgerUnavailable, LedgerClosed, LedgerNotUsable)
"""What ends the scheduler: another one took over, or nothing can be recorded."""


class Handling:
    """See the module."""

    def __init__(self, quarantine: Quarantine, readmission: "Readmission") -> None:
        self._quarantine, self._readmission = quarantine, readmission

    @contextmanager
    def step(
        self, changes: "PassChanges", source: Source, key: str, uid: str = ""
    ) -> Iterator[None]:
        """One step about an input, and about the workload ``uid`` if there is one."""
        before = Savepoint(changes)
        with self._quarantine.guard(source, key, fatal=FATAL) as guard:
            yield
        if guard.failed:
            before.restore()
            self._readmission.damaged(uid)

    @contextmanager
    def message(self, changes: "PassChanges", message: LoopEvent) -> Iterator[None]:
        """The handling of one message."""
        try:
            source, key, uid = origin(message)
        except Exception:  # noqa: BLE001 - its handling says what is wrong with it
            source, key, uid = "message", type(message).__name__, ""
        with self.step(changes, source, str(key), uid):
            yield


def origin(message: LoopEvent) -> tuple[Source, str, str]:
    """What a message is about: source and key, and the uid of its workload or nothing."""
    match message:
        case WorkloadChanged(change):
            uid = change.object.meta.uid
            return "workload", uid, uid
        case ProjectChanged(change):
            return "project", change.object.meta.name, ""
        case DepartmentChanged(change):
            return "department", change.object.meta.name, ""
        case TaskSeen(task):
            return _of_task(task.id)
        case StartRefused(task):
            return _of_task(task)
        case DevicesSampled(facts):
            return "node", facts.name, ""
        case ExternalEvents() | Wake() | UsedLately():
            return "message", type(message).__name__, ""
        case _:
            return "message", message.uid, message.uid


def _of_task(task: TaskId) -> tuple[Source, str, str]:
    return "task", task.workload_uid, task.workload_uid
