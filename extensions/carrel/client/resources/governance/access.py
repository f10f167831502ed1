"""Roles and access rules: who may do what, where."""

from collections.abc import Sequence

from carrel.client.transport import Transport, segment
from carrel_schema.governance.roles import (
    AccessRuleList,
    AccessRuleOut,
    PermissionCheck,
    RoleList,
    RoleOut,
)


class AccessMethods:
    """Read and write access rules; ``scope`` is text as ``department/sciences``."""

    _transport: Transport

    async def list_roles(self) -> Sequence[RoleOut]:
        """All roles and their permissions."""
        return (await self._transport.ask("GET", "/roles", RoleList)).items

    async def list_access_rules(self, scope: str | None = None) -> Sequence[AccessRuleOut]:
        """The caller's own access rules, and those of scopes whose rules the caller may read."""
        parameters = {"scope": scope}
        found = await self._transport.ask(
            "GET", "/access-rules", AccessRuleList, parameters=parameters
        )
        return found.items

    async def grant_role(
        self, subject: str, role: str, scope: str, *, subject_kind: str = "user"
    ) -> AccessRuleOut:
        """Give a user, a group or a service account a role in a scope."""
        body = {"subject": subject, "role": role, "scope": scope, "subject_kind": subject_kind}
        return await self._transport.ask("POST", "/access-rules", AccessRuleOut, body=body)

    async def revoke_role(self, rule_id: str) -> None:
        """Remove an access rule."""
        await self._transport.send("DELETE", f"/access-rules/{segment(rule_id)}")

    async def check_permission(self, permission: str, scope: str = "platform") -> PermissionCheck:
        """Whether the caller has a permission, as ``projects:create``, in a scope."""
        parameters = {"permission": permission, "scope": scope}
        return await self._transport.ask(
            "GET", "/permission", PermissionCheck, parameters=parameters
        )
