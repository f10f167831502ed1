"""Access rules in the form of the API.

Who may change rules in a scope gives and takes the roles of people who work there. Roles that
govern are given by administrators of the platform alone, so that nobody becomes more than they are.
"""

from collections.abc import Sequence
from uuid import uuid4

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals import service_accounts
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.scoped_records import ScopedRecord, scope_exists
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_scheduler.policy.access_records import KIND, read
from carrel_schema.answers import HeldRole
from carrel_schema.governance.roles import (
    ALL,
    GIVEN_IN_DEPARTMENTS,
    ROLES,
    AccessRuleFields,
    AccessRuleOut,
    PermissionCheck,
    roles_with,
)
from carrel_schema.governance.service_accounts import SUFFIX
from carrel_schema.objects import Project
from carrel_schema.scopes import PLATFORM, Scope


class AccessRuleService:
    """Reads and writes access rules."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    async def visible(self, principal: Principal, scope: Scope | None) -> Sequence[AccessRuleOut]:
        """Rules of scopes that the caller may read, and the caller's own."""
        found = await self._deps.ledger.scoped.list(KIND, scopes=None if scope is None else [scope])

        def seen(record: ScopedRecord) -> bool:
            rule = read(record)
            mine = principal.name.removesuffix(SUFFIX)
            own = rule.subject_kind == principal.kind and rule.subject == mine
            return own or principal.may("access-rules:read", record.scope)

        return [_out(one) for one in found if seen(one)]

    async def grant(
        self, fields: AccessRuleFields, scope: Scope, principal: Principal
    ) -> AccessRuleOut:
        """Create a rule; an equal existing one is returned.

        Raises ``PermissionDenied`` for a role that is not the caller's to give, ``InvalidRequest``
        for a scope that the role is not for, or that is not there.
        """
        self._check_role(fields.role, scope, principal)
        await self._check_scope(scope)
        if fields.subject_kind == "service-account":
            await self._check_account(fields.subject, scope)
        for record in await self._deps.ledger.scoped.list(KIND, scopes=[scope]):
            known = read(record)
            if (known.subject_kind, known.subject, known.role) == (
                fields.subject_kind,
                fields.subject,
                fields.role,
            ):
                return _out(record)
        record = ScopedRecord(
            kind=KIND,
            scope=scope,
            name=uuid4().hex[:12],
            content=msgspec.Raw(msgspec.json.encode(fields)),
        )
        made = await self._deps.ledger.scoped.put(record, actor=principal.name, expected_version=0)
        self._deps.access_rules.forget()
        return _out(made)

    async def revoke(self, rule_id: str, principal: Principal) -> None:
        """Remove a rule; raises ``Missing``, ``PermissionDenied``."""
        for record in await self._deps.ledger.scoped.list(KIND):
            if record.name != rule_id:
                continue
            if not principal.may("access-rules:update", record.scope):
                break
            self._check_role(read(record).role, record.scope, principal)
            try:
                await self._deps.ledger.scoped.remove(KIND, record.scope, record.name)
            except ObjectNotFound:
                break
            self._deps.access_rules.forget()
            return
        raise problems.Missing(
            Code.NOT_FOUND, f"There is no access rule `{rule_id}` that you can see"
        )

    def held(self, principal: Principal) -> Sequence[HeldRole]:
        """The caller's roles, with their origin."""
        found = [HeldRole(role="administrator", scope="platform", source="administrators")]
        found = found if principal.admin else []
        found += [
            HeldRole(role="researcher", scope=f"project/{one}", source="member")
            for one in sorted(principal.projects)
        ]
        return found + [
            HeldRole(role=role, scope=scope, source="access rule")
            for role, scope in principal.rights.held
        ]

    def check(self, permission: str, scope: Scope, principal: Principal) -> PermissionCheck:
        """Whether the caller has a permission.

        Raises ``InvalidRequest`` for an unknown permission.
        """
        if permission not in ALL:
            known = ", ".join(f"`{one}`" for one in sorted(ALL))
            raise problems.invalid_field("permission", Code.INVALID, permission, f"one of {known}")
        allowed = principal.may(permission, scope)
        return PermissionCheck(
            permission=permission, scope=str(scope), allowed=allowed, roles=roles_with(permission)
        )

    def _check_role(self, name: str, scope: Scope, principal: Principal) -> None:
        role = ROLES[name]  # type: ignore[index]  # validated with the request
        if scope.level not in role.levels:
            right = " or ".join(f"`{one}`" for one in role.levels)
            raise problems.invalid_field(
                "scope", Code.WRONG_FORM, str(scope), f"a scope of the level {right} for this role"
            )
        if name not in GIVEN_IN_DEPARTMENTS and not principal.may("access-rules:escalate", scope):
            given = ", ".join(f"`{one}`" for one in sorted(GIVEN_IN_DEPARTMENTS))
            raise problems.PermissionDenied(
                Code.MISSING_PERMISSION,
                f"You give and take the roles {given}; `{name}` takes the permission "
                "`access-rules:escalate`, which administrators of the platform have",
            )

    async def _check_account(self, name: str, scope: Scope) -> None:
        """A service account has roles in its own scope and below: who makes its tokens has them."""
        found = await self._deps.ledger.scoped.list(service_accounts.KIND)
        home = next((one.scope for one in found if one.name == name), None)
        if home is None:
            right = "a service account that exists"
            raise problems.invalid_field("subject", Code.NOT_FOUND, name, right)
        inside = [scope, PLATFORM]
        if scope.level == "project":
            department = (await self._deps.ledger.get(Project, scope.name)).spec.department
            inside += [Scope("department", department)] if department else []
        if home not in inside:
            right = f"`{home}`, where the service account is, or a scope below it"
            raise problems.invalid_field("scope", Code.WRONG_FORM, str(scope), right)

    async def _check_scope(self, scope: Scope) -> None:
        if not await scope_exists(self._deps.ledger, scope):
            right = f"a {scope.level} that exists"
            raise problems.invalid_field("scope", Code.NOT_FOUND, str(scope), right)


def _out(record: ScopedRecord) -> AccessRuleOut:
    rule = read(record)
    return AccessRuleOut(
        id=record.name,
        subject=rule.subject,
        subject_kind=rule.subject_kind,
        role=rule.role,
        scope=str(record.scope),
        created_at=record.created_at,
        created_by=record.created_by,
    )
