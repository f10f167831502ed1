"""Undoing what a handler added to a turn before it failed.

A handler appends to the lists of its turn. When it raises, what it appended is cut off again, so
that nothing half-done is recorded or reaches the engine. The entry it worked on is then read anew
(``readmission``).
"""

from typing import Final

from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges

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
    """How much a turn held at one moment."""

    def __init__(self, changes: PassChanges) -> None:
        self._cycle = changes
        self._lengths = [len(getattr(changes, name)) for name in _LISTS]
        self._dirty = len(changes.dirty)

    def restore(self) -> None:
        """Cut off what came later."""
        for name, length in zip(_LISTS, self._lengths, strict=True):
            del getattr(self._cycle, name)[length:]
        while len(self._cycle.dirty) > self._dirty:
            self._cycle.dirty.popitem()
