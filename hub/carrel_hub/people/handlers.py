"""The Hub's handlers for the scheduler's service: ``/hub/api/carrel/people``.

They need the scope ``custom:carrel:people``, which that service alone holds: it has checked what
the caller may do, and says who that is. ``/hub/people`` leads people to the console's page.
"""

import asyncio
import time
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.handlers.base import BaseHandler
from tornado import web
from typing_extensions import override

from carrel_hub import scopes
from carrel_hub.accounts.store import AccountError
from carrel_hub.accounts.throttle import Busy
from carrel_hub.directory.group_rules import GroupRules
from carrel_hub.people.changes import PersonError, UserChanges
from carrel_hub.people.records import People, PeopleQuery
from carrel_schema.governance.people import (
    DirectoryGroupList,
    DirectoryGroupOut,
    InvitationFields,
    PasswordChange,
    UserFields,
)

T = TypeVar("T")
ROOT: Final = "/api/carrel/people"


class _Handler(APIHandler):
    """The base of the handlers."""

    @override
    async def prepare(self) -> None:
        """Admit only the scheduler's service."""
        untyped: Any = self
        base: Any = super()
        await base.prepare()
        if untyped.current_user is None or scopes.PEOPLE not in untyped.parsed_scopes:
            raise web.HTTPError(403, f"This needs the scope {scopes.PEOPLE}.")

    @property
    def people(self) -> People:
        """The users of the Hub."""
        untyped: Any = self
        return People(untyped.db, untyped.authenticator, time.time())

    @property
    def changes(self) -> UserChanges:
        """The changes, made in the name of the administrator whom the query names."""
        untyped: Any = self
        actor: str = self.get_query_argument("actor")
        return UserChanges(untyped.app, untyped.authenticator, actor)

    def read(self, kind: type[T]) -> T:
        """The body. Raises ``HTTPError`` 400."""
        try:
            return msgspec.json.decode(self.request.body, type=kind)
        except msgspec.MsgspecError as error:
            raise web.HTTPError(400, str(error)) from error

    def answer(self, content: Any) -> None:
        """Answer with JSON."""
        self.set_header("Content-Type", "application/json")
        untyped: Any = self
        untyped.finish(msgspec.json.encode(content))

    def show(self, name: str) -> None:
        """Answer with the present state of one user."""
        found = self.people.find(name)
        if found is None:
            raise PersonError(404, f"There is nobody called {name}.")
        self.answer(found)

    @override
    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with an error as a sentence."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, PersonError):
            status_code, message = error.status, str(error)
        elif isinstance(error, AccountError):
            status_code, message = 422, str(error)
        else:
            base: Any = super()
            base.write_error(status_code, **kwargs)
            return
        self.set_status(status_code)
        self.answer({"status": status_code, "message": message})

    @override
    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Refusals are no news."""
        if not isinstance(value, PersonError | AccountError):
            base: Any = super()
            base.log_exception(typ, value, tb)


class ListHandler(_Handler):
    """``/api/carrel/people``: a page of users."""

    @override
    def get(self) -> None:
        """Answer with the users that match the query."""
        argument = self.get_query_argument
        query = PeopleQuery(
            text=argument("search", ""),
            state=argument("state", ""),
            sort=argument("sort", "name"),
            descending=argument("descending", "") == "true",
            limit=int(argument("limit", "50")),
            offset=int(argument("offset", "0")),
        )
        self.answer(self.people.page(query))


class PersonHandler(_Handler):
    """``/api/carrel/people/NAME``: one user."""

    @override
    def get(self, name: str) -> None:
        """Answer with the user's present state."""
        self.show(name)

    @override
    def patch(self, name: str) -> None:
        """Change the fields in the body."""
        self.changes.update(name, self.read(UserFields))
        self.show(name)

    @override
    async def delete(self, name: str) -> None:
        """Remove the user."""
        await self.changes.remove(name)
        self.set_status(204)


class ActionHandler(_Handler):
    """``/api/carrel/people/NAME/ACTION``."""

    @override
    async def post(self, name: str, action: str) -> None:
        """Apply the action."""
        changes = self.changes
        if action == "invite":
            self.answer(changes.invite(name, self.read(InvitationFields)))
            return
        if action == "password":
            await self._change_password(changes, name)
            return
        if action == "disable":
            await changes.disable(name)
        elif action == "enable":
            changes.enable(name)
        elif action == "end-sessions":
            changes.end_sessions(name)
        else:
            changes.revoke_invitation(name)
        found = self.people.find(name)
        self.answer({} if found is None else found)

    async def _change_password(self, changes: UserChanges, name: str) -> None:
        untyped: Any = self
        asked, authenticator = self.read(PasswordChange), untyped.authenticator
        throttle = getattr(authenticator, "throttle", None)
        if getattr(authenticator, "accounts", None) is None or throttle is None:
            raise PersonError(422, "Your password is your directory's: change it there.")
        source = f"api {name}"
        wait = throttle.begin(source, name)
        if wait > 0:
            raise PersonError(429, f"Too many attempts; try again in {round(wait)} s.")
        try:
            async with authenticator.slots.one():
                await asyncio.to_thread(changes.change_password, name, asked.old, asked.new)
        except Busy:
            raise PersonError(
                503, "Too many passwords are being checked at once; try again."
            ) from None
        throttle.succeeded(source, name)
        user = untyped.app.users.get(name)
        if user is not None:
            authenticator.controller.apply(user.orm_user)
        self.set_status(204)


class FileRules(_Handler):
    """``/api/carrel/directory-groups``: the group rules in the file."""

    @override
    def get(self) -> None:
        """Answer with all rules; none for a Hub without a directory."""
        untyped: Any = self
        rules: GroupRules | None = getattr(untyped.authenticator, "rules", None)
        found = [
            DirectoryGroupOut(
                group=one.group, projects=one.projects, admin=one.admin, source="file"
            )
            for one in (() if rules is None else rules.all())
        ]
        self.answer(DirectoryGroupList(items=found))


class PeopleRedirect(BaseHandler):
    """``/hub/people``: leads to the console's page."""

    @override
    def get(self) -> None:
        """Redirect."""
        untyped: Any = self
        where = f"{untyped.settings['base_url']}services/{scopes.CONSOLE}/people"
        self.redirect(where, status=HTTPStatus.FOUND)


HANDLERS: Final[list[Any]] = [
    ("/people", PeopleRedirect),
    ("/api/carrel/directory-groups", FileRules),
    (ROOT, ListHandler),
    (rf"{ROOT}/([^/]+)", PersonHandler),
    (
        rf"{ROOT}/([^/]+)/(invite|revoke-invitation|enable|disable|end-sessions|password)",
        ActionHandler,
    ),
]
