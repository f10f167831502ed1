"""Guarded steps of a reconcile pass: one that fails harms nothing but what it was about.

Of a step that raises, what it appended to the pass is cut off again, so that nothing half-done is
recorded or reaches the engine. Its input is set aside, and its workload, if there is one, is
rebuilt from what is recorded (``reconcile.adoption``), at most once a minute. Errors of the ledger
are no such failure: they end the process, and the next start recovers.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.engines.external import ExternalEvents
from carrel_scheduler.ledger.errors import LedgerClosed, LedgerNotUsable, LedgerUnavailable
from carrel_scheduler.ledger.records import Fenced
from carrel_scheduler.quarantine import Quarantine, Source
from carrel_scheduler.workloads.state.events import (
    BudgetsUsedUp,
    CordonEnded,
    DepartmentChanged,
    DevicesSampled,
    LoopEvent,
    NodeReported,
    ProjectChanged,
    StartRefused,
    TaskSeen,
    UsedLately,
    Wake,
    WorkloadChanged,
)
from carrel_scheduler.workloads.state.pass_changes import PassChanges

FATAL: Final = (Fenced, LedgerUnavailable, LedgerClosed, LedgerNotUsable)
"""The errors that end the scheduler: another one took over, or nothing can be recorded."""
_LISTS: Final = (
    "transitions",
    "decisions",
    "starts",
    "stops",
    "forgets",
    "finished",
    "removed",
    "wake_hub",
    "queued",
    "wakes",
)


class Savepoint:
    """The lengths of a pass's lists at one moment, to undo what a failing handler appended."""

    def __init__(self, changes: PassChanges) -> None:
        self._changes = changes
        self._lengths = [len(getattr(changes, name)) for name in _LISTS]
        self._dirty = len(changes.dirty)

    def restore(self) -> None:
        """Drop the changes that were added after the savepoint."""
        for name, length in zip(_LISTS, self._lengths, strict=True):
            del getattr(self._changes, name)[length:]
        while len(self._changes.dirty) > self._dirty:
            self._changes.dirty.popitem()


class GuardedSteps:
    """See the module.

    Args:
        quarantine: where inputs go that cannot be processed.
        damaged: called with the uid of each workload whose handling failed.
    """

    def __init__(self, quarantine: Quarantine, damaged: Callable[[str], None]) -> None:
        self._quarantine, self._damaged = quarantine, damaged

    @contextmanager
    def step(self, changes: PassChanges, source: Source, key: str, uid: str = "") -> Iterator[None]:
        """Guard one step that handles an input, of the workload ``uid`` if given."""
        before = Savepoint(changes)
        with self._quarantine.guard(source, key, fatal=FATAL) as guard:
            yield
        if guard.failed:
            before.restore()
            self._damaged(uid)

    @contextmanager
    def event(self, changes: PassChanges, event: LoopEvent) -> Iterator[None]:
        """The handling of one event."""
        try:
            source, key, uid = origin(event)
        except Exception:  # noqa: BLE001 - its handling says what is wrong with it
            source, key, uid = "message", type(event).__name__, ""
        with self.step(changes, source, str(key), uid):
            yield


def origin(event: LoopEvent) -> tuple[Source, str, str]:
    """The subject of an event: source, key, and the uid of its workload or nothing."""
    match event:
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
        case NodeReported(node):
            return "node", node, ""
        case CordonEnded(node):
            return "node", node, ""
        case ExternalEvents() | Wake() | UsedLately() | BudgetsUsedUp():
            return "message", type(event).__name__, ""
        case _:
            return "message", event.uid, event.uid


def _of_task(task: TaskId) -> tuple[Source, str, str]:
    return "task", task.workload_uid, task.workload_uid


REBUILD_PAUSE_SECONDS: Final = 60.0
"""A workload is rebuilt at most once in so long."""


class Rebuilds:
    """The workloads whose handling failed, and the time of each one's rebuild."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}
        self._last: dict[str, float] = {}

    def damaged(self, uid: str) -> None:
        """Schedule a rebuild after the pass: handling this workload failed; "" is ignored."""
        if uid and uid not in self._due:
            last = self._last.get(uid, -math.inf)
            self._due[uid] = max(self._clock(), last + REBUILD_PAUSE_SECONDS)

    def forget(self, uid: str) -> None:
        """The workload has gone."""
        self._last.pop(uid, None)

    def clock_set_back(self, seconds: float) -> None:
        """The clock was set back by so much."""
        self._due = {uid: due - seconds for uid, due in self._due.items()}
        self._last = {uid: at - seconds for uid, at in self._last.items()}

    @property
    def due_at(self) -> float | None:
        """The time of the next rebuild; ``None`` without any."""
        return min(self._due.values(), default=None)

    def take_due(self) -> list[str]:
        """Remove and return the uids that are due for a rebuild."""
        if not self._due:
            return []
        now = self._clock()
        found = [uid for uid, due in self._due.items() if due <= now]
        for uid in found:
            del self._due[uid]
            self._last[uid] = now
        return found
