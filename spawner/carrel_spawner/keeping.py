"""What has to be in the Hub's database soon goes there with what the Hub commits anyway.

A commit holds up the Hub's only thread until the disk has it, and a start already makes half a
dozen. All parts of a Hub share one session, so whoever commits first commits for all; nobody
commits on a quiet Hub, so after a short wait one does it oneself, for all who wait.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import event
from sqlalchemy.orm import Session

OTHERS_SECONDS: Final = 0.01


class _Outcomes:
    """Tells all who wait what becomes of the session's next transaction."""

    def __init__(self, session: Session) -> None:
        self._waiting: set[asyncio.Future[bool]] = set()
        event.listen(session, "after_commit", lambda *_: self._tell(kept=True))
        event.listen(session, "after_soft_rollback", lambda *_: self._tell(kept=False))

    async def next(self, seconds: float) -> bool:
        """Whether a commit came first, before any rollback and within that time."""
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.add(outcome)
        try:
            # Of several whose time is over at once the first one commits for the others, too.
            await asyncio.wait({outcome}, timeout=seconds)
        finally:
            self._waiting.discard(outcome)
        return outcome.done() and outcome.result()

    def _tell(self, *, kept: bool) -> None:
        for outcome in self._waiting:
            if not outcome.done():
                outcome.set_result(kept)


_OUTCOMES: WeakKeyDictionary[Session, _Outcomes] = WeakKeyDictionary()


async def keep(session: Any, change: Callable[[], None]) -> None:
    """Change objects of the Hub's session; return once that is committed.

    ``change`` may be called twice: a rollback of somebody else's takes the first one back.
    """
    if session not in _OUTCOMES:
        _OUTCOMES[session] = _Outcomes(session)
    change()
    if not await _OUTCOMES[session].next(OTHERS_SECONDS):
        change()
        session.commit()
