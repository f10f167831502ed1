"""The Hub's sign-in with the accounts file.

The file says who there is and who is an admin; the Hub's groups say who belongs to which project,
but for the first projects of a new account. What the file says is applied at the Hub's start, at
each request of a user (``refresh_user``) and by ``AccountsController`` whenever it changed, so a
removed account or a replaced password takes effect at once, whether the Hub ran or not.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

from jupyterhub import orm
from jupyterhub.auth import Authenticator
from tornado import web
from traitlets import Bool, Integer, Unicode
from typing_extensions import override

from carrel_hub.accounts import sessions
from carrel_hub.accounts.account import LocalAccount
from carrel_hub.accounts.controller import AccountsController, stop_servers
from carrel_hub.accounts.handlers import InvitationHandler, PasswordHandler
from carrel_hub.accounts.passwords import LONGEST, hash_password, verify
from carrel_hub.accounts.sources import remember_browser, source_of_attempt
from carrel_hub.accounts.store import AccountError, AccountStore
from carrel_hub.accounts.throttle import Busy, HashingSlots, Throttle


class CarrelAuthenticator(Authenticator):
    """Names and passwords from a file."""

    accounts_file = Unicode(help="The accounts file, absolute.").tag(config=True)
    auth_refresh_age = Integer(1, help="Seconds between two looks at a user's account.").tag(
        config=True
    )
    auth_refresh_strict = Bool(
        True,  # noqa: FBT003 - a traitlet's default
        help="Tokens of a removed account are refused as its sessions are.",
    ).tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        base: Any = super()
        base.__init__(**kwargs)
        self.accounts = AccountStore(Path(self.accounts_file))
        self.throttle = Throttle(time.monotonic)
        self.slots = HashingSlots()
        self.allow_all = True  # only who has an account gets as far as being allowed
        self._nobody = hash_password("nobody's password")
        self.controller = AccountsController(self.accounts, self.log)
        self._running: asyncio.Task[None] | None = None
        self._app: Any = None

    @override
    def get_handlers(self, app: Any) -> list[Any]:
        """Called once by the Hub, inside its event loop; begins to look after accounts."""
        self._app = app
        self._running = asyncio.create_task(self.controller.run(app))
        base: Any = super()
        handlers: list[Any] = base.get_handlers(app)
        return [
            *handlers,
            ("/password", PasswordHandler),
            ("/invitation", InvitationHandler),
        ]

    @override
    async def authenticate(self, handler: Any, data: dict[str, str]) -> dict[str, Any] | None:
        """The user's name and whether they are an admin; ``None`` when the password is wrong."""
        normalize: Any = self.normalize_username
        name = normalize(data.get("username", ""))
        password = data.get("password", "")
        source = source_of_attempt(handler, name, self._app.trusted_downstream_ips)
        wait = self.throttle.begin(source, name)
        if wait > 0:
            raise web.HTTPError(429, f"Too many wrong passwords; try again in {round(wait)} s.")
        account = self._found(name)
        # An unknown name takes as long as a known one.
        stored = account.password if account else self._nobody
        try:
            async with self.slots.one():
                right = await asyncio.to_thread(verify, password[:LONGEST], stored)
        except Busy:
            raise web.HTTPError(503, "Too many people sign in at once; try again.") from None
        if account is None or not right or len(password) > LONGEST:
            return None
        self.throttle.succeeded(source, name)
        # The projects and rights of the account are applied before the session begins.
        user = handler.db.query(orm.User).filter_by(name=name).first()
        if user is not None:
            self.controller.apply(user)
        remember_browser(handler, name)
        return {"name": name, "admin": account.admin}

    @override
    async def refresh_user(self, user: Any, handler: Any = None) -> bool | dict[str, Any]:
        """Whether the session or token that the user came with still counts."""
        account = self._found(user.name)
        if account is None:
            return False
        self.controller.apply(user.orm_user)
        if account.revoke:
            return False
        return user.admin == account.admin or {"name": user.name, "admin": account.admin}

    @override
    def add_user(self, user: Any) -> None:
        """Called for every user at the Hub's start, with its row, and for each new one.

        Raises ``AccountError`` when a user without an account is made, as on the Hub's admin page.
        """
        at_start = not hasattr(user, "orm_user")
        row: Any = user if at_start else user.orm_user
        if not at_start and self.accounts.find(row.name) is None:
            raise AccountError(
                f"{row.name} has no account: make one where Carrel runs, "
                f"with `carrel user add {row.name}`."
            )
        base: Any = super()
        base.add_user(user)
        self.controller.apply(row)

    @override
    async def delete_user(self, user: Any) -> None:
        """Called when a user is deleted, as on the Hub's admin page: the account goes too."""
        if self.accounts.find(user.name) is not None:
            self.accounts.remove(user.name)
        sessions.revoke(user.orm_user)
        await stop_servers(self._app, user, list(user.orm_spawners))
        base: Any = super()
        base.delete_user(user)

    def _found(self, name: str) -> LocalAccount | None:
        try:
            return self.accounts.find(name)
        except AccountError as error:
            self.log.exception("Nobody can sign in")
            raise web.HTTPError(503, "The accounts cannot be read; ask an admin.") from error
