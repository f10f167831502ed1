"""Makes the Hub's users what the accounts file says, at every look and soon after every change.

Rights are rows and go at once; servers of users that are no more are stopped as soon as the Hub
knows them again after a start, and then the Hub's user is deleted. What fails is tried again.
"""

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from jupyterhub import orm
from sqlalchemy.orm import object_session

from carrel_hub.accounts import sessions
from carrel_hub.accounts.account import LocalAccount
from carrel_hub.accounts.store import AccountStore
from carrel_hub.scopes import ADMIN_GROUP

GROUP_PREFIX: Final = "project-"
LOOK_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 10.0


class AccountsController:
    """Reconciles the Hub's users with the accounts."""

    def __init__(self, accounts: AccountStore, log: logging.Logger) -> None:
        self._accounts, self._log = accounts, log
        self._done: dict[str, LocalAccount] | None = None
        self._to_stop: dict[str, list[str]] = {}
        """Servers of an earlier account, by the name that a new one has taken."""

    def apply(self, user: Any) -> None:
        """Make a user what the account says; without one it holds nothing any more. Commit."""
        if not self._accounts.path.exists():
            return  # a lost file locks people out, but takes nothing away for good
        account = self._accounts.find(user.name)
        if account is None:
            sessions.revoke(user)
            return
        if account.revoke == "everything":
            user.groups = []  # a new account of the name is not disabled
            sessions.revoke(user)
            self._to_stop[user.name] = servers_of(user)
        elif account.revoke == "sessions":
            sessions.end_sessions(user)
        _join(user, account)
        if account.revoke or account.joins:
            self._accounts.applied(user.name, account)

    async def run(self, app: Any) -> None:
        """Look at the file for as long as the Hub ``app`` runs."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self.reconcile(app)
            except Exception:  # noqa: BLE001 - whatever it is, accounts have to be looked after again
                self._log.exception("Accounts could not be applied; trying again")
                await asyncio.sleep(RETRY_SECONDS)

    async def reconcile(self, app: Any) -> None:
        """Apply the file to every user, unless it is the one that was applied last."""
        if not self._accounts.path.exists():
            return
        wanted = self._accounts.all()
        if wanted == self._done and not self._to_stop:
            return
        settled = True
        for user in [app.users[row] for row in app.db.query(orm.User).all()]:
            self.apply(user.orm_user)
            delete = user.name not in wanted
            if delete or user.name in self._to_stop:
                settled = await self._end_work(app, user, delete=delete) and settled
        self._done = wanted if settled else None

    async def _end_work(self, app: Any, user: Any, *, delete: bool) -> bool:
        """Stop the user's servers; says whether the Hub knows already which of them run."""
        if any(one.pending == "check" for one in user.spawners.values()):
            return False
        if delete:
            await stop_servers(app, user, servers_of(user.orm_user))
            if self._accounts.find(user.name) is not None:
                return False  # made anew meanwhile
            self._log.info("Deleting %s, whose account was removed", user.name)
            await user.delete_spawners()
            app.users.delete(user)
        else:
            await stop_servers(app, user, self._to_stop[user.name])
        self._to_stop.pop(user.name, None)
        return True


def servers_of(user: Any) -> list[str]:
    """Names of the servers that run or start, of a user's row."""
    return [name for name, one in user.orm_spawners.items() if one.server is not None]


async def stop_servers(app: Any, user: Any, names: Iterable[str]) -> None:
    """Stop servers of a user, and starts that have not come to their end."""
    for name in names:
        spawner = user.spawners[name]
        if not spawner.active:
            continue
        begun = spawner._spawn_future  # noqa: SLF001 - the Hub has no other way to end a start
        if begun is not None and not begun.done():
            begun.cancel()
            await asyncio.wait([begun])
        await app.proxy.delete_user(user, name)
        await user.stop(name)


def _join(user: Any, account: LocalAccount) -> None:
    """First projects of a new account, and the group of admins exactly for admins. Commit."""
    present = {group.name for group in user.groups}
    wanted = {f"{GROUP_PREFIX}{project}" for project in account.joins}
    if account.admin:
        wanted.add(ADMIN_GROUP)
    no_more = set() if account.admin else {ADMIN_GROUP} & present
    if wanted <= present and not no_more:
        return
    database: Any = object_session(user)
    user.groups = [group for group in user.groups if group.name not in no_more]
    for name in sorted(wanted - present):
        user.groups.append(group_named(database, name))
    database.commit()


def group_named(database: Any, name: str) -> Any:
    """The group of that name in the Hub's database, created if missing."""
    group = database.query(orm.Group).filter_by(name=name).first()
    if group is None:
        group = orm.Group(name=name)
        database.add(group)
    return group
