"""Pages of the Hub for accounts of the file: one's own password, and invitations.

A password is chosen by who knows the present one, or by who holds a link that an admin made; both
are limited like sign-in. A changed password ends all sessions and tokens, also this one.
"""

import asyncio
import time
from typing import Any
from urllib.parse import urlencode

from jupyterhub.handlers.base import BaseHandler
from tornado import web
from typing_extensions import override

from carrel_hub.accounts.passwords import LONGEST, SHORTEST, verify
from carrel_hub.accounts.sources import source_of_attempt
from carrel_hub.accounts.store import BAD_LINK, AccountError, AccountStore
from carrel_hub.accounts.throttle import Busy


class _AccountHandler(BaseHandler):
    """The base of the account pages."""

    @property
    def accounts(self) -> AccountStore:
        """The accounts in the file."""
        untyped: Any = self
        found: AccountStore = untyped.authenticator.accounts
        return found

    async def page(self, template: str, status: int = 200, **context: Any) -> None:
        """Answer with a page, which no cache keeps and whose address no other site is told."""
        untyped: Any = self
        self.set_status(status)
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        untyped.finish(await untyped.render_template(template, shortest=SHORTEST, **context))

    def attempt(self, name: str) -> str:
        """Count an attempt to prove who one is; returns its source. Raises 429."""
        untyped: Any = self
        authenticator = untyped.authenticator
        source: str = source_of_attempt(self, name, untyped.app.trusted_downstream_ips)
        wait = authenticator.throttle.begin(source, name)
        if wait > 0:
            raise web.HTTPError(429, f"Too many attempts; try again in {round(wait)} s.")
        return source

    def chosen(self) -> str:
        """The new password, typed twice. Raises ``AccountError``."""
        new = self.get_body_argument("new", "", strip=False)
        if new != self.get_body_argument("again", "", strip=False):
            raise AccountError("The two passwords differ.")
        if len(new) > LONGEST:
            raise AccountError(f"The password is too long: use at most {LONGEST} characters.")
        return new

    async def in_slot(self, work: Any, *arguments: Any) -> Any:
        """Run what hashes a password, as many at once as sign-in allows. Raises 503."""
        untyped: Any = self
        try:
            async with untyped.authenticator.slots.one():
                return await asyncio.to_thread(work, *arguments)
        except Busy:
            raise web.HTTPError(503, "Too many people sign in at once; try again.") from None


class PasswordHandler(_AccountHandler):
    """``/hub/password``: changes the user's own password."""

    @web.authenticated
    @override
    async def get(self) -> None:
        """Show the form."""
        await self.page("password.html", problem="")

    @web.authenticated
    @override
    async def post(self) -> None:
        """Change the password, then require a new sign-in."""
        untyped: Any = self
        name: str = untyped.current_user.name
        account = self.accounts.find(name)
        source = self.attempt(name)
        old = self.get_body_argument("old", "", strip=False)
        if account is None or not await self.in_slot(verify, old[:LONGEST], account.password):
            await self.page("password.html", 403, problem="The present password is another one.")
            return
        try:
            await self.in_slot(self.accounts.set_password, name, self.chosen())
        except AccountError as error:
            await self.page("password.html", 422, problem=str(error))
            return
        untyped.authenticator.throttle.succeeded(source, name)
        untyped.authenticator.controller.apply(untyped.current_user.orm_user)
        untyped.clear_login_cookie()
        untyped.redirect(f"{untyped.hub.base_url}login")


class InvitationHandler(_AccountHandler):
    """``/hub/invitation?user=&token=``: choose a password by a link, without being signed in."""

    @override
    async def get(self) -> None:
        """Show the form, or that the link is not valid."""
        name, token = self.get_query_argument("user", ""), self.get_query_argument("token", "")
        counts = self.accounts.is_invited(name, token, time.time())
        problem = "" if counts else BAD_LINK
        await self.page(
            "invitation.html",
            200 if counts else 404,
            problem=problem,
            counts=counts,
            account=name if counts else "",
            token=token if counts else "",
        )

    @override
    async def post(self) -> None:
        """Set the password, then require a sign-in."""
        untyped: Any = self
        name, token = self.get_body_argument("user", ""), self.get_body_argument("token", "")
        source = self.attempt(name)
        try:
            await self.in_slot(self.accounts.accept, name, token, self.chosen(), time.time())
        except AccountError as error:
            counts = self.accounts.is_invited(name, token, time.time())
            await self.page(
                "invitation.html", 422, problem=str(error), counts=counts, account=name, token=token
            )
            return
        untyped.authenticator.throttle.succeeded(source, name)
        untyped.redirect(f"{untyped.hub.base_url}login?{urlencode({'username': name})}")
