"""What has to be in the Hub's database soon goes there with what the Hub commits anyway.

A commit holds up the Hub's only thread until the disk has it, and a start already makes half a
dozen. All parts of a Hub share one session, so whoever commits next commits for all who wait; on a
quiet Hub, after a short while, one of them does. Changes are made within that commit and not
before: what lies uncommitted in the session while others work, the Hub rolls back, and with it
everything that the session knows.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import event
from sqlalchemy.orm import Session

OTHERS_SECONDS: Final = 0.01

Change = Callable[[], None]


class _Waiting:
    """Changes that wait for the session's next commit."""

    def __init__(self, session: Session) -> None:
        self._changes: dict[asyncio.Future[None], Change] = {}
        self._made: list[asyncio.Future[None]] = []
        event.listen(session, "before_commit", self._make)
        event.listen(session, "after_commit", self._tell)

    async def committed(self, change: Change, seconds: float) -> bool:
        """Whether somebody committed the change within that time."""
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


_WAITING: WeakKeyDictionary[Session, _Waiting] = WeakKeyDictionary()


async def keep(session: Any, change: Change) -> None:
    """Have objects of the Hub's session changed; return once that is committed.

    ``change`` is called again should a commit fail.
    """
    if session not in _WAITING:
        _WAITING[session] = _Waiting(session)
    if not await _WAITING[session].committed(change, OTHERS_SECONDS):
        change()
        session.commit()
