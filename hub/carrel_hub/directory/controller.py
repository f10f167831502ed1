"""Asks the directory again, every few minutes, about everybody whom the Hub knows.

Who is gone from it loses everything and their workspaces stop, as with a removed account; jobs go
on. Who has to sign in again loses sessions and tokens, while running workspaces keep theirs. While
the directory does not answer nothing changes: nobody is locked out, and nobody gains anything.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any, Protocol

from jupyterhub import orm
from tornado import web

from carrel.errors import CarrelError
from carrel_hub.accounts import sessions
from carrel_hub.accounts.controller import servers_of, stop_servers
from carrel_hub.directory.membership import forget
from carrel_hub.directory.table import GroupTable


class DirectoryState(Enum):
    """The directory's state of a user who has signed in before."""

    KNOWN = "known"
    SIGN_IN_AGAIN = "sign in again"
    GONE = "gone"


class DirectoryUnreachableError(Exception):
    """The directory did not answer, or not usefully; nothing follows from that for anybody."""


class OneUserUnknownError(DirectoryUnreachableError):
    """The directory answered, and not usefully for this one user; others are asked about."""


class UserSource(Protocol):
    """Queries the directory: an authenticator of the Hub ``app``."""

    app: Any
    table: GroupTable

    async def ask(self, user: Any) -> DirectoryState:
        """Query the directory about a user of the Hub, and apply the answer.

        Raises ``OneUserUnknownError`` where only this user's answer is of no use, else
        ``DirectoryUnreachableError``; ``HTTPError`` 403 for who may not be here any more.
        """


Report = Callable[[float, str], Awaitable[None]]
"""Tells the scheduler when a round succeeded last (epoch seconds) and why the last one failed."""


class DirectoryController:
    """Keeps the Hub's users as the directory has them.

    Args:
        authenticator: asks about one user.
        seconds: between two rounds.
        log: for those who run the Hub.
        report: told after each round; ``None``: nobody is.
        clock: epoch seconds.
    """

    def __init__(
        self,
        authenticator: UserSource,
        seconds: float,
        log: logging.Logger,
        report: Report | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._authenticator, self._seconds, self._log = authenticator, seconds, log
        self._report, self._clock = report, clock
        self._succeeded_at = 0.0
        self._unreachable = False
        self._unknown: set[str] = set()

    async def run(self) -> None:
        """Ask for as long as the Hub runs; first soon after its start."""
        await asyncio.sleep(min(self._seconds, 10.0))
        while True:
            await self.one_round()
            await asyncio.sleep(self._seconds)

    async def one_round(self) -> None:
        """Query about all users, and report the result; raises no error."""
        try:
            failed = await self.ask_about_all()
        except Exception as error:  # noqa: BLE001 - whatever it is, people have to be asked about again
            self._log.exception("Users could not be compared with the directory; trying again")
            failed = type(error).__name__
        if not failed:
            self._succeeded_at = self._clock()
        if self._report is None:
            return
        try:
            await self._report(self._succeeded_at, failed)
        except CarrelError as error:
            self._log.debug(
                "the state of the directory could not be sent to the scheduler: %s", error
            )

    async def ask_about_all(self) -> str:
        """Ask about every user; end early when the directory does not answer, and return why."""
        await self._authenticator.table.refresh()
        app = self._authenticator.app
        for name in [row.name for row in app.db.query(orm.User).all()]:
            user = app.users.get(name)
            if user is None:
                continue  # deleted meanwhile
            try:
                await self._ask_about(app, user)
                self._unknown.discard(name)
            except OneUserUnknownError as error:
                if name not in self._unknown:
                    self._log.warning("Rights of %s stay as they are: %s", name, error)
                self._unknown.add(name)
            except DirectoryUnreachableError as error:
                if not self._unreachable:
                    self._log.warning("The directory does not answer, rights stay: %s", error)
                self._unreachable = True
                return str(error)
            except Exception:  # noqa: BLE001 - one user's answer must not keep others' removals from counting
                if name not in self._unknown:
                    self._log.exception("Rights of %s stay as they are", name)
                self._unknown.add(name)
        if self._unreachable:
            self._log.warning("The directory answers again")
        self._unreachable = False
        return ""

    async def _ask_about(self, app: Any, user: Any) -> None:
        try:
            standing = await self._authenticator.ask(user)
        except web.HTTPError as error:
            if error.status_code != 403:
                raise
            standing = DirectoryState.GONE  # known there, and not to come here any more
        if standing is DirectoryState.SIGN_IN_AGAIN:
            sessions.end_sessions(user.orm_user)
        elif standing is DirectoryState.GONE:
            self._log.info("%s may not sign in any more", user.name)
            forget(user.orm_user)
            sessions.revoke(user.orm_user)
            await stop_servers(app, user, servers_of(user.orm_user))
