"""Users and groups of the directory, for administrators.

People are the Hub's, see ``principals.users``; the table of groups is kept in the ledger, from
where the Hub reads it again and again. Changes of people are written into the audit log with what
they were before.
"""

import contextlib
from collections.abc import Sequence
from typing import Any

import msgspec

from carrel_scheduler.alerts.subscriptions import KIND as WORK_SUBSCRIPTION
from carrel_scheduler.alerts.subscriptions import NAME as OWN
from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.principals.users import UserRefusal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.audit import actor as actors
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord, scope_exists
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_scheduler.policy.access_records import DIRECTORY_KIND as KIND
from carrel_scheduler.workloads.launch import identities
from carrel_schema.governance.people import (
    DirectoryGroupFields,
    DirectoryGroupOut,
    Invitation,
    InvitationFields,
    PasswordChange,
    PosixIdentity,
    UserFields,
    UserOut,
    UserPage,
    usable,
)
from carrel_schema.governance.roles import ROLES
from carrel_schema.names import expected_project_name
from carrel_schema.scopes import PLATFORM, Scope


class UserAccounts:
    """Shows and changes people."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    async def page(self, **query: str) -> UserPage:
        """A page of users."""
        return await self._deps.users.page(query)

    async def get(self, name: str) -> UserOut:
        """Read a user. Raises ``Missing``."""
        try:
            found = await self._deps.users.get(name)
        except UserRefusal as refusal:
            raise _problem(refusal, name) from refusal
        numbers = await identities.of_users(self._deps.ledger, [name])
        return msgspec.structs.replace(found, posix=numbers.get(name))

    async def identity(self, name: str) -> PosixIdentity:
        """The POSIX identity that the directory gives a user; uid 0: none."""
        found = await identities.of_users(self._deps.ledger, [name])
        return found.get(name, PosixIdentity())

    async def put_identity(self, name: str, identity: PosixIdentity) -> PosixIdentity:
        """Store a user's POSIX identity from the directory; no two users share one.

        Without a uid and a problem: it says nothing any more.
        """
        scope = identities.scope_of(name)
        if scope is None:
            raise problems.invalid_field("user", Code.BAD_NAME, name, "a user name")
        records = self._deps.ledger.scoped
        if not (identity.uid or identity.problem):
            await self._remove_identity(scope)
            return identity
        own = identity if identity.problem else usable(identity)
        for other in await records.list(identities.KIND):
            taken = identities.read(other).uid
            if own.uid and taken == own.uid and other.scope != scope:
                own = PosixIdentity(
                    problem=f"the directory gives {other.scope.name} the uid {taken}, too; "
                    "each person should have one of their own"
                )
        content = msgspec.Raw(msgspec.json.encode(own))
        record = ScopedRecord(
            kind=identities.KIND, scope=scope, name=identities.NAME, content=content
        )
        await records.put(record, actor="hub")
        return own

    async def _remove_identity(self, scope: Scope) -> None:
        """Remove a user's POSIX identity: Carrel chooses the numbers of later work."""
        with contextlib.suppress(ObjectNotFound):
            await self._deps.ledger.scoped.remove(identities.KIND, scope, identities.NAME)

    async def update(self, name: str, fields: UserFields, principal: Principal) -> UserOut:
        """Change the given fields. Raises ``InvalidRequest`` for an unknown project."""
        await _check_projects(self._deps.ledger, fields.projects or ())
        before = await self.get(name)
        try:
            after = await self._deps.users.update(name, fields, principal.name)
        except UserRefusal as refusal:
            raise _problem(refusal, name) from refusal
        self._deps.identity.forget(name)
        await self._note("update", name, before, after)
        return after

    async def remove(self, name: str, principal: Principal) -> None:
        """Remove one with sessions, tokens and memberships."""
        before = await self.get(name)
        try:
            await self._deps.users.remove(name, principal.name)
        except UserRefusal as refusal:
            raise _problem(refusal, name) from refusal
        self._deps.identity.forget(name)
        scope = identities.scope_of(name)
        if scope is not None:
            await self._remove_identity(scope)
            with contextlib.suppress(ObjectNotFound):
                await self._deps.ledger.scoped.remove(WORK_SUBSCRIPTION, scope, OWN)
        await self._deps.access_rules.revoke_all("user", name)
        await self._note("delete", name, before, None)

    async def invite(self, name: str, fields: InvitationFields, principal: Principal) -> Invitation:
        """Create a link with which the user sets a password. Raises as ``update``."""
        await _check_projects(self._deps.ledger, fields.projects)
        try:
            made = await self._deps.users.invite(name, fields, principal.name)
        except UserRefusal as refusal:
            raise _problem(refusal, name) from refusal
        asked = {"projects": fields.projects, "admin": fields.admin}
        await self._note("invite", name, None, asked | {"expires_at": made.expires_at})
        return made

    async def act(self, name: str, action: str, principal: Principal) -> None:
        """Enable, disable, end sessions, revoke an invitation."""
        before = await self.get(name)
        try:
            await self._deps.users.act(name, action, principal.name)
        except UserRefusal as refusal:
            raise _problem(refusal, name) from refusal
        self._deps.identity.forget(name)
        removed = action == "revoke-invitation" and before.state == "invited"
        after = None if removed else await self.get(name)
        await self._note(action, name, before, after)

    async def change_password(self, change: PasswordChange, principal: Principal) -> None:
        """Set a new password for the caller's own account."""
        if principal.kind != "user":
            raise problems.PermissionDenied(Code.USER_EXPECTED, "Only a person has a password")
        try:
            await self._deps.users.change_password(principal.name, change)
        except UserRefusal as refusal:
            raise _problem(refusal, principal.name) from refusal
        self._deps.identity.forget(principal.name)
        await self._note("password", principal.name, None, None)

    async def _note(self, verb: str, name: str, before: Any, after: Any) -> None:
        actor = actors.ACTOR.get()
        if actor is None:
            return
        entry = actor.entry_of_change(
            verb,
            "User",
            scope=f"user/{name}",
            name=name,
            before=None if before is None else _told(before),
            after=None if after is None else _told(after),
        )
        await self._deps.ledger.audit.add([entry])
        actor.recorded += 1


class DirectoryGroups:
    """Reads and writes the table of groups of the directory."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    async def list(self, source: str) -> Sequence[DirectoryGroupOut]:
        """Rules of the table, of the file or, where ``source`` is empty, of both."""
        found: list[DirectoryGroupOut] = []
        if source != "file":
            found += [_out(one) for one in await self._deps.ledger.scoped.list(KIND)]
        if source != "table":
            with contextlib.suppress(UserRefusal):  # a Hub without people for Carrel
                found += await self._deps.users.file_rules()
        return sorted(found, key=lambda one: (one.group, one.source))

    async def put(
        self, group: str, fields: DirectoryGroupFields, principal: Principal
    ) -> DirectoryGroupOut:
        """Set what a group's members get here. Raises ``InvalidRequest``, ``Conflicting``."""
        await self._check(fields)
        rule = msgspec.structs.replace(fields, expected_version=None)
        record = ScopedRecord(
            kind=KIND,
            scope=PLATFORM,
            name=group,
            content=msgspec.Raw(msgspec.json.encode(rule)),
        )
        try:
            made = await self._deps.ledger.scoped.put(
                record, actor=principal.name, expected_version=fields.expected_version
            )
        except (ObjectExists, VersionConflict, ObjectNotFound) as error:
            raise problems.Conflicting(Code.CONFLICT, str(error)) from error
        self._deps.access_rules.forget()
        return _out(made)

    async def delete(self, group: str) -> None:
        """Delete a group's rule, and take back what its members got by it. Raises ``Missing``."""
        try:
            await self._deps.ledger.scoped.remove(KIND, PLATFORM, group)
        except ObjectNotFound as error:
            raise problems.Missing(
                Code.NOT_FOUND, f"There is no rule for the group `{group}` in the table"
            ) from error
        self._deps.access_rules.forget()

    async def _check(self, fields: DirectoryGroupFields) -> None:
        await _check_projects(self._deps.ledger, fields.projects)
        if bool(fields.role) != bool(fields.scope):
            field = "scope" if fields.role else "role"
            raise problems.invalid_field(
                field, Code.MISSING_FIELD, "", "a role together with the scope it is given in"
            )
        if not fields.role:
            return
        try:
            scope = Scope.parse(fields.scope)
        except ValueError as error:
            right = str(error).rpartition("it should be ")[2]
            raise problems.invalid_field("scope", Code.WRONG_FORM, fields.scope, right) from error
        levels = ROLES[fields.role].levels
        if scope.level not in levels:
            raise problems.invalid_field(
                "scope", Code.WRONG_FORM, fields.scope, f"{' or '.join(levels)} for this role"
            )
        if not await scope_exists(self._deps.ledger, scope):
            right = f"a {scope.level} that exists"
            raise problems.invalid_field("scope", Code.NOT_FOUND, fields.scope, right)


async def _check_projects(ledger: Ledger, names: Sequence[str]) -> None:
    for name in names:
        if expected_project_name(name) or not await scope_exists(ledger, Scope("project", name)):
            raise problems.invalid_field(
                "projects", Code.UNKNOWN_PROJECT, name, "a project that exists"
            )


def _out(record: ScopedRecord) -> DirectoryGroupOut:
    rule = msgspec.json.decode(record.content, type=DirectoryGroupFields)
    return DirectoryGroupOut(
        group=record.name,
        projects=rule.projects,
        admin=rule.admin,
        role=rule.role,
        scope=rule.scope,
        version=record.version,
        changed_at=record.changed_at,
        changed_by=record.changed_by,
    )


def _told(content: Any) -> bytes:
    """The fields of a user for the audit log: not those that change by themselves."""
    found = msgspec.to_builtins(content)
    if isinstance(content, UserOut):
        for name in ("last_seen_at", "workspaces", "created_at"):
            found.pop(name, None)
        found["memberships"] = content.projects
    return msgspec.json.encode(found)


def _problem(refusal: UserRefusal, name: str) -> problems.Problem:
    message = str(refusal).rstrip(".")
    if refusal.status == 404:
        return problems.Missing(Code.UNKNOWN_USER, message)
    if refusal.status == 409:
        return problems.Conflicting(Code.CONFLICT, message)
    if refusal.status == 403:
        return problems.PermissionDenied(Code.NOT_THE_OWNER, message)
    if refusal.status == 429:
        return problems.TooMany(Code.TOO_MANY_ATTEMPTS, message)
    return problems.invalid_field("user", Code.CANNOT_CHANGE, name, message)
