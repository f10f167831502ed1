"""What happened to an object, and how several happenings that nobody has seen yet become one."""

from collections import OrderedDict
from enum import Enum
from typing import Any, Final, Generic, TypeVar

import msgspec

T = TypeVar("T")


class ChangeKind(Enum):
    """What happened. ``SYNCED``: all that was there at the beginning has been told."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    SYNCED = "SYNCED"


class Change(msgspec.Struct, Generic[T], frozen=True):
    """One change; at ``DELETED`` the object is the last one known."""

    kind: ChangeKind
    found: T | None = None

    @property
    def object(self) -> T:
        """What changed. Raises ``ValueError`` at ``SYNCED``, which is about none."""
        if self.found is None:
            raise ValueError(f"a change of kind {self.kind.value} has no object")
        return self.found


SYNCED: Final[Change[Any]] = Change(ChangeKind.SYNCED)


class Pending(Generic[T]):
    """Changes that somebody has still to take, one at most for each object, the last ones last.

    However slow the taker is, this never grows beyond the number of objects; what he sees is always
    a state that was, only that he may miss states in between.
    """

    def __init__(self) -> None:
        self._of: OrderedDict[str, Change[T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._of)

    def put(self, uid: str, change: Change[T]) -> None:
        """Add what happened last to an object."""
        earlier = self._of.pop(uid, None)
        merged = change if earlier is None else merge(earlier, change)
        if merged is not None:
            self._of[uid] = merged

    def pop(self) -> Change[T]:
        """The one that waits longest. Raises ``KeyError`` when there is none."""
        return self._of.popitem(last=False)[1]


def merge(earlier: Change[T], later: Change[T]) -> Change[T] | None:
    """What two changes of one object are to somebody who saw neither; ``None``: nothing."""
    if earlier.kind is ChangeKind.ADDED:
        if later.kind is ChangeKind.DELETED:
            return None
        return Change(ChangeKind.ADDED, later.found)
    if earlier.kind is ChangeKind.DELETED:
        return Change(ChangeKind.MODIFIED, later.found)
    return later
