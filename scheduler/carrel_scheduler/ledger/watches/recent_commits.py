"""The latest commits of this process in memory: changes for watches, and identities of objects.

The scheduler itself writes most changes, and most of them are statuses that nobody follows. What a
watch of specifications needs of a commit is handed over as it was written instead of being read
back. A commit says which version it began with, so whatever another process wrote in between shows
as a gap, and the watch reads the database.

Identities are used by the one thread that writes. An entry is good for the version that it carries
and for no other; entries are dropped oldest first.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from carrel_scheduler.ledger.rows.codec import Encoded
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.ledger.watches.watch import Batch
from carrel_schema.objects import Meta, ObjectT

MOST_CHANGES: Final = 10_000


class Fresh(NamedTuple):
    """A change that is more than a status, as written."""

    type: ChangeType
    object: Encoded[Any]


class Commit(NamedTuple):
    """The changes of one commit: everything after version ``began``, up to ``through``."""

    began: int
    through: int
    changes: Sequence[Fresh]


class RecentCommits:
    """A few thousand changes; used in the event loop only."""

    def __init__(self) -> None:
        self._commits: deque[Commit] = deque()
        self._held = 0

    def add(self, commit: Commit) -> None:
        """Keep a commit; everything before a gap is forgotten."""
        if self._commits and self._commits[-1].through != commit.began:
            self._commits.clear()
            self._held = 0
        self._commits.append(commit)
        self._held += _size(commit)
        while self._held > MOST_CHANGES and len(self._commits) > 1:
            self._held -= _size(self._commits.popleft())

    def after(self, kind: type[ObjectT], cursor: int) -> Batch[ObjectT] | None:
        """All later changes of specifications; ``None`` if they are only in the database."""
        if not self._commits or cursor < self._commits[0].began:
            return None
        through = self._commits[-1].through
        if cursor >= through:
            return None
        found: list[Change[ObjectT]] = []
        for commit in reversed(self._commits):
            if commit.through <= cursor:
                break
            found += [
                Change(fresh.type, fresh.object.meta.resource_version, fresh.object.decode())
                for fresh in reversed(commit.changes)
                if fresh.object.kind is kind and fresh.object.meta.resource_version > cursor
            ]
        found.reverse()
        return Batch(found, through)


def _size(commit: Commit) -> int:
    return 1 + len(commit.changes)


MOST: Final = 100_000


class Identities:
    """``Meta`` by uid."""

    def __init__(self) -> None:
        self._metas: dict[str, Meta] = {}

    def get(self, uid: str) -> Meta | None:
        """The latest version that is kept."""
        return self._metas.get(uid)

    def keep(self, metas: Mapping[str, Meta]) -> None:
        """Keep what was committed."""
        for uid, meta in metas.items():
            self._metas.pop(uid, None)
            self._metas[uid] = meta
        while len(self._metas) > MOST:
            del self._metas[next(iter(self._metas))]
