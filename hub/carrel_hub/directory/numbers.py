"""Numbers of accounts (uid, gid, groups) by the directory, told to the scheduler.

Somebody who signs in is told to it first, so that none of their work runs under other numbers;
those who are asked about again are told when something changed.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Protocol

from carrel.errors import CarrelError
from carrel_schema.governance.people import LARGEST_ID, PosixIdentity, usable

ANSWER_SECONDS: Final = 5.0
MISSING: Final = PosixIdentity(problem="the directory has no uid and gid of theirs")


class NumbersReceiver(Protocol):
    """The scheduler."""

    async def put_user_identity(self, name: str, identity: PosixIdentity) -> PosixIdentity:
        """Store a user's POSIX numbers. Raises ``CarrelError``."""
        ...


class Numbers:
    """The numbers that were reported to the scheduler."""

    def __init__(self) -> None:
        self._told: dict[str, PosixIdentity] = {}

    async def tell(self, scheduler: NumbersReceiver, name: str, identity: PosixIdentity) -> bool:
        """Tell it once; returns whether it knows. A number that others have is told each time."""
        if self._told.get(name) == identity:
            return True
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                taken = await scheduler.put_user_identity(name, identity)
        except (CarrelError, TimeoutError):
            return False
        if taken.problem == identity.problem:
            self._told[name] = identity
        return True


def posix_identity(uid: Any, gid: Any, gids: Any) -> PosixIdentity:
    """Numbers as a directory says them: numbers or texts, alone or in lists."""
    uids, first = _numbers(uid), _numbers(gid)
    if len(uids) != 1 or len(first) != 1:
        return MISSING
    return usable(PosixIdentity(uid=uids[0], gid=first[0], gids=tuple(_numbers(gids))))


def _numbers(said: Any) -> list[int]:
    many: Iterable[Any] = said if isinstance(said, list | tuple) else (said,)
    texts = (str(one) for one in many if isinstance(one, int | str) and not isinstance(one, bool))
    found = (int(one) for one in texts if one.isascii() and one.isdecimal() and len(one) < 11)
    return [one for one in found if one <= LARGEST_ID]
