"""Changes of one person by administrators, each checked and then applied at once.

Accounts of Carrel's own are changed in their file; what a directory says of somebody is changed in
the directory alone. Whoever calls has checked that the actor may do this.
"""

import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

from jupyterhub import orm

from carrel_hub.accounts import disabled, sessions
from carrel_hub.accounts.controller import GROUP_PREFIX, group_named, servers_of, stop_servers
from carrel_hub.accounts.passwords import LONGEST, verify
from carrel_hub.accounts.store import AccountStore
from carrel_hub.directory.membership import brought_by, forget
from carrel_hub.people.records import People
from carrel_schema.governance.people import Invitation, InvitationFields, UserFields
from carrel_schema.names import expected_project_name

DAY_SECONDS: Final = 86_400.0


class PersonError(Exception):
    """A change is refused; ``status`` is that of the answer, the message says why."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class UserChanges:
    """Changes of people.

    Args:
        app: the Hub.
        authenticator: the Hub's.
        actor: who asks for them.
    """

    def __init__(self, app: Any, authenticator: Any, actor: str) -> None:
        self._app, self._authenticator, self._actor = app, authenticator, actor
        self._database: Any = app.db

    def invite(self, name: str, fields: InvitationFields) -> Invitation:
        """Make a link by which somebody chooses a password; makes the account if need be."""
        for project in fields.projects:
            _check_project(project)
        until = time.time() + fields.days * DAY_SECONDS
        token = self._accounts.invite(name, until, admin=fields.admin, joins=list(fields.projects))
        path = f"hub/invitation?{urlencode({'user': name, 'token': token})}"
        return Invitation(user=name, path=path, expires_at=until)

    def revoke_invitation(self, name: str) -> None:
        """Let an invitation count no more; an account without a password is removed."""
        account = self._accounts.find(name)
        if account is None or not account.invitation:
            raise PersonError(409, f"{name} has no invitation.")
        if account.password:
            self._accounts.revoke_invitation(name)
        else:
            self._accounts.remove(name)

    def update(self, name: str, fields: UserFields) -> None:
        """Make them an administrator or none, and say which projects they were given by hand."""
        self._known(name)
        for project in fields.projects or ():
            _check_project(project)
        if fields.admin is not None:
            if self._local is None:
                raise PersonError(
                    422, "Who administers is said by the directory: change its table of groups."
                )
            if not fields.admin:
                self._check_other(name)
            self._local.set_admin(name, admin=fields.admin)
        if fields.projects is not None:
            self._give_projects(name, fields.projects)
        row = disabled.row_of(self._database, name)
        if row is not None and self._local is not None:
            self._authenticator.controller.apply(row)

    async def disable(self, name: str) -> None:
        """End what they hold and let them sign in no more; jobs and memberships stay."""
        self._known(name)
        self._check_other(name)
        user = self._met(name)
        disabled.disable(self._database, user.orm_user)
        sessions.end_all(user.orm_user)
        await stop_servers(self._app, user, servers_of(user.orm_user))

    def enable(self, name: str) -> None:
        """Enable a disabled user."""
        self._known(name)
        disabled.enable(self._database, self._met(name).orm_user)

    def end_sessions(self, name: str) -> None:
        """End sessions and tokens; running workspaces keep theirs."""
        self._known(name)
        row = disabled.row_of(self._database, name)
        if row is not None:
            sessions.end_sessions(row)

    async def remove(self, name: str) -> None:
        """Remove somebody with sessions, tokens and memberships; files, jobs and history stay."""
        self._known(name)
        self._check_other(name)
        if self._local is not None and self._local.find(name) is not None:
            self._local.remove(name)  # the controller of accounts does the rest
            row = disabled.row_of(self._database, name)
            if row is not None:
                self._authenticator.controller.apply(row)
            return
        user = self._met(name)
        forget(user.orm_user)
        sessions.revoke(user.orm_user)
        await stop_servers(self._app, user, servers_of(user.orm_user))
        await _awaited(self._authenticator.delete_user(user))
        await user.delete_spawners()
        self._app.users.delete(user)

    def change_password(self, name: str, old: str, new: str) -> None:
        """Choose a new password by the present one; ends sessions and tokens.

        It hashes: call it in a thread.
        """
        account = self._accounts.find(name)
        if account is None or not verify(old[:LONGEST], account.password):
            raise PersonError(403, "The present password is another one.")
        self._accounts.set_password(name, new)

    @property
    def _local(self) -> AccountStore | None:
        found: AccountStore | None = getattr(self._authenticator, "accounts", None)
        return found

    @property
    def _accounts(self) -> AccountStore:
        if self._local is None:
            raise PersonError(
                422, "People sign in with a directory here: accounts and passwords are kept there."
            )
        return self._local

    def _people(self) -> People:
        return People(self._database, self._authenticator, time.time())

    def _known(self, name: str) -> None:
        if self._people().find(name) is None:
            raise PersonError(404, f"There is nobody called {name}.")

    def _check_other(self, name: str) -> None:
        if name == self._actor:
            raise PersonError(409, "Let another administrator change or remove your own account.")
        if self._people().admins() == [name]:
            raise PersonError(
                409, f"{name} is the only administrator; make somebody else one first."
            )

    def _met(self, name: str) -> Any:
        """The Hub's user; one that it has not met yet is made."""
        user = self._app.users.get(name)
        if user is None:
            user = self._app.users.add(_new_row(self._database, name))
            self._authenticator.add_user(user)
        return user

    def _give_projects(self, name: str, projects: Sequence[str]) -> None:
        row = self._met(name).orm_user
        wanted = {f"{GROUP_PREFIX}{one}" for one in projects}
        kept = [
            group
            for group in row.groups
            if not group.name.startswith(GROUP_PREFIX)
            or group.name in wanted
            or name in brought_by(group)
        ]
        row.groups = kept
        for group in sorted(wanted - {one.name for one in kept}):
            row.groups.append(group_named(self._database, group))
        self._database.commit()


def _check_project(name: str) -> None:
    expected = expected_project_name(name)
    if expected:
        raise PersonError(422, f"projects has {name!r}; it should be {expected}.")


def _new_row(database: Any, name: str) -> Any:
    row = orm.User(name=name)
    database.add(row)
    database.commit()
    return row


async def _awaited(found: Any) -> None:
    if found is not None:
        await found
