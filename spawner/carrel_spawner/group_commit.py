"""Group commit: changes of the Hub's database are committed with the Hub's own next commit.

A commit blocks the Hub's event loop until the disk has it, and a start already makes half a dozen.
The Hub has one database session, so its next commit takes all pending changes along; on an idle Hub
one of the callers commits after a short wait. Changes are made inside that commit and not before,
because the Hub rolls back what it finds uncommitted in the session.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import event
from sqlalchemy.orm import Session

COMMIT_WAIT_SECONDS: Final = 0.01

Change = Callable[[], None]


class _WaitingChanges:
    """Changes that wait for the session's next commit."""

    def __init__(self, session: Session) -> None:
        self._changes: dict[asyncio.Future[None], Change] = {}
        self._made: list[asyncio.Future[None]] = []
        event.listen(session, "before_commit", self._make)
        event.listen(session, "after_commit", self._tell)

    async def committed(self, change: Change, seconds: float) -> bool:
        """Whether the change was committed within that time."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changes[done] = change
        try:
            # Of several whose time is over at once the first one commits for the others, too.
            await asyncio.wait({done}, timeout=seconds)
        finally:
            self._changes.pop(done, None)
        return done.done()

    def _make(self, _: Session) -> None:
        self._made = list(self._changes)
        for done in self._made:
            self._changes[done]()

    def _tell(self, _: Session) -> None:
        for done in self._made:
            if self._changes.pop(done, None) is not None:
                done.set_result(None)
        self._made = []


_WAITING: WeakKeyDictionary[Session, _WaitingChanges] = WeakKeyDictionary()


async def keep(session: Any, change: Change) -> None:
    """Have objects of the Hub's session changed; return once that is committed.

    ``change`` is called again should a commit fail.
    """
    if session not in _WAITING:
        _WAITING[session] = _WaitingChanges(session)
    if not await _WAITING[session].committed(change, COMMIT_WAIT_SECONDS):
        change()
        session.commit()
