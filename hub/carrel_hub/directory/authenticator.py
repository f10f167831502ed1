"""Base of the OIDC and LDAP authenticators: user names, admission, rights, repeated checks.

The Hub's own refreshing is off (``auth_refresh_age`` 0), since it would let requests wait for the
directory: ``DirectoryController`` asks beside them.
"""

import asyncio
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from cachetools import TTLCache
from jupyterhub import orm
from jupyterhub.auth import Authenticator
from tornado import web
from traitlets import Any as AnyTrait
from traitlets import Unicode
from typing_extensions import override

from carrel_hub.accounts.controller import stop_servers
from carrel_hub.accounts.store import AccountError, check_name
from carrel_hub.directory.controller import DirectoryController, DirectoryState
from carrel_hub.directory.group_rules import GroupRuleError, GroupRules
from carrel_hub.directory.membership import DirectoryMembership, apply, forget, membership
from carrel_hub.directory.numbers import Numbers
from carrel_hub.directory.table import GroupTable
from carrel_schema.governance.people import PosixIdentity
from carrel_spawner.connections import shared_client

ASK_AN_ADMIN: Final = "Ask an admin."
ARRIVING: Final = 1000
ARRIVING_SECONDS: Final = 60.0
"""The time between the directory's answer and the Hub's row of a new user, at most."""


class DirectoryAuthenticator(Authenticator):
    """Base of the authenticators; ``sign_in`` and ``groups_file`` come by the configuration."""

    sign_in: Any = AnyTrait(help="The settings, a ``SignIn``.").tag(config=True)
    groups_file = Unicode(help="The table of groups, absolute.").tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        base: Any = super()
        base.__init__(**kwargs)
        self.allow_all = True  # whoever is not to come is refused with a sentence in ``admit``
        self.auth_refresh_age = 0
        self.rules = GroupRules(Path(self.groups_file))
        self.table = GroupTable(self._scheduler)
        self._numbers = Numbers()
        self.app: Any = None
        self._arriving: TTLCache[str, DirectoryMembership] = TTLCache(ARRIVING, ARRIVING_SECONDS)
        self._running: asyncio.Task[None] | None = None

    @override
    def get_handlers(self, app: Any) -> list[Any]:
        """Called once by the Hub, inside its event loop; begins to look after its users."""
        self.app = app
        controller = DirectoryController(
            self, self.sign_in.refresh_seconds, self.log, self._report_sync
        )
        self._running = asyncio.create_task(controller.run())
        base: Any = super()
        handlers: list[Any] = base.get_handlers(app)
        return handlers

    async def ask(self, user: Any) -> DirectoryState:
        """Ask the directory again about a user of the Hub, and apply the answer.

        Raises ``DirectoryUnreachableError`` when it gives none.
        """
        raise NotImplementedError

    async def report_numbers(self, name: str, identity: PosixIdentity) -> None:
        """Send the POSIX numbers of a user's work to the scheduler, before the sign-in.

        Raises ``HTTPError`` 503 when it does not answer.
        """
        told = await self._numbers_told(name, identity)
        if not told and self.sign_in.uid_source == "directory":
            raise web.HTTPError(503, "The scheduler does not answer; try again.")

    async def report_again(self, name: str, identity: PosixIdentity) -> None:
        """Report a user's POSIX numbers again; a failure is tried again in the next round."""
        if not await self._numbers_told(name, identity):
            self.log.warning("the POSIX numbers of %s could not be sent to the scheduler", name)

    async def _numbers_told(self, name: str, identity: PosixIdentity) -> bool:
        scheduler = self._scheduler()
        if scheduler is None:
            return True
        used = identity if self.sign_in.uid_source == "directory" else PosixIdentity()
        return await self._numbers.tell(scheduler, name, used)

    async def _report_sync(self, succeeded_at: float, error: str) -> None:
        scheduler = self._scheduler()
        if scheduler is not None:
            await scheduler.put_directory_sync(succeeded_at, error)

    def _scheduler(self) -> Any:
        """The scheduler's client; ``None`` for a Hub without one."""
        token = getattr(self, "audit_token", "")
        return shared_client(getattr(self, "audit_url", ""), token) if token else None

    def local_name(self, name: str) -> str:
        """The user name here. Raises ``HTTPError`` 403 with a sentence when it can be none."""
        local = name.strip().lower()
        try:
            check_name(local)
        except AccountError as error:
            raise web.HTTPError(403, f"You cannot sign in here: {error} {ASK_AN_ADMIN}") from None
        return local

    def admit(self, name: str, groups: Collection[str]) -> bool:
        """Apply what the groups make of the user; returns whether they manage everything.

        Raises ``HTTPError`` 403 for who is in none of the required groups, and 503 when the table
        of groups cannot be read.
        """
        required = self.sign_in.required_groups
        if required and not set(required) & set(groups):
            raise web.HTTPError(
                403,
                f"You cannot sign in here: {name} is in none of the groups "
                f"{', '.join(required)}. {ASK_AN_ADMIN}",
            )
        try:
            rules = self.rules.all()
        except GroupRuleError as error:
            self.log.exception("Nobody can sign in")
            raise web.HTTPError(503, f"The table of groups cannot be read. {ASK_AN_ADMIN}") from (
                error
            )
        wanted = membership(
            (*rules, *self.table.rules),
            groups,
            admin=name in self.sign_in.admins,
            complete=self.table.complete,
        )
        row = self._row(name)
        if row is None:
            self._arriving[name] = wanted  # the Hub makes the row next
        else:
            apply(row, wanted)
        return wanted.admin

    @override
    def add_user(self, user: Any) -> None:
        """Called for every user at the Hub's start, with its row, and for each new one."""
        base: Any = super()
        base.add_user(user)
        row: Any = getattr(user, "orm_user", user)
        wanted = self._arriving.pop(row.name, None)
        if wanted is not None:
            apply(row, wanted)

    @override
    async def delete_user(self, user: Any) -> None:
        """Called when an admin deletes a user: nothing of the name's rights may stay."""
        forget(user.orm_user)
        await stop_servers(self.app, user, list(user.orm_spawners))
        base: Any = super()
        base.delete_user(user)

    def _row(self, name: str) -> Any:
        return self.app.db.query(orm.User).filter_by(name=name).first()
