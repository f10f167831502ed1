"""The Hub's sign-in with the accounts file.

An account that is removed loses its session at the next refresh. A new account's first projects
become Hub groups when the Hub first meets the user; afterwards the groups are the truth, and this
file has no say in them.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

from jupyterhub import orm
from jupyterhub.auth import Authenticator
from sqlalchemy.orm import object_session
from tornado import web
from traitlets import Unicode
from typing_extensions import override

from carrel_hub.accounts.passwords import hash_password, verify
from carrel_hub.accounts.store import AccountError, Accounts
from carrel_hub.accounts.throttle import Throttle
from carrel_hub.scopes import ADMIN_GROUP

GROUP_PREFIX = "project-"


class CarrelAuthenticator(Authenticator):
    """Names and passwords from a file."""

    accounts_file = Unicode(help="The accounts file, absolute.").tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        base: Any = super()
        base.__init__(**kwargs)
        self.accounts = Accounts(Path(self.accounts_file))
        self.throttle = Throttle(time.monotonic)
        self.allow_all = True  # only who has an account gets as far as being allowed
        self._nobody = hash_password("nobody's password")

    @override
    async def authenticate(self, handler: Any, data: dict[str, str]) -> dict[str, Any] | None:
        """The user's name and whether they are an admin; ``None`` when the password is wrong."""
        normalize: Any = self.normalize_username
        name = normalize(data.get("username", ""))
        wait = self.throttle.wait_seconds(name)
        if wait > 0:
            raise web.HTTPError(429, f"Too many wrong passwords; try again in {round(wait)} s.")
        try:
            account = self.accounts.find(name)
        except AccountError as error:
            self.log.exception("Nobody can sign in")
            raise web.HTTPError(503, "The accounts cannot be read; ask an admin.") from error
        # An unknown name takes as long as a known one.
        stored = account.password if account else self._nobody
        right = await asyncio.to_thread(verify, data.get("password", ""), stored)
        if account is None or not right:
            self.throttle.failed(name)
            return None
        self.throttle.succeeded(name)
        return {"name": name, "admin": account.admin}

    @override
    async def refresh_user(self, user: Any, handler: Any = None) -> bool | dict[str, Any]:
        """Whether the account is still there, and whether it is an admin's."""
        account = self.accounts.find(user.name)
        if account is None:
            return False
        self._join(user)
        return {"name": user.name, "admin": account.admin}

    @override
    def add_user(self, user: Any) -> None:
        """Called for every user at the Hub's start and for each new one."""
        base: Any = super()
        base.add_user(user)
        self._join(user)

    def _join(self, user: Any) -> None:
        """Make the user a member of what the account says: first projects, and the admins."""
        account = self.accounts.find(user.name)
        if account is None:
            return
        member: Any = getattr(user, "orm_user", user)
        present = {group.name for group in member.groups}
        wanted = {f"{GROUP_PREFIX}{project}" for project in self.accounts.take_joins(user.name)}
        if account.admin:
            wanted.add(ADMIN_GROUP)
        if wanted <= present:
            return
        database: Any = object_session(member)
        for name in sorted(wanted - present):
            member.groups.append(_group(database, name))
        database.commit()


def _group(database: Any, name: str) -> Any:
    """The Hub's group, made when it is missing."""
    group = database.query(orm.Group).filter_by(name=name).first()
    if group is None:
        group = orm.Group(name=name)
        database.add(group)
    return group
