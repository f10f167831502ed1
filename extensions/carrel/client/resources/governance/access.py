"""Roles, access rules and service accounts: who may do what, where."""

from collections.abc import Sequence

from carrel.client.transport import Transport, segment
from carrel_schema.governance.roles import (
    AccessRuleList,
    AccessRuleOut,
    PermissionCheck,
    RoleList,
    RoleOut,
)
from carrel_schema.governance.service_accounts import (
    NewToken,
    ServiceAccountList,
    ServiceAccountOut,
)


class AccessMethods:
    """Read and write access rules; ``scope`` is text as ``department/sciences``."""

    _transport: Transport

    async def list_roles(self) -> Sequence[RoleOut]:
        """List the roles and their permissions."""
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

    async def list_service_accounts(self) -> Sequence[ServiceAccountOut]:
        """Service accounts of scopes that the caller administers."""
        return (await self._transport.ask("GET", "/service-accounts", ServiceAccountList)).items

    async def put_service_account(
        self, name: str, scope: str, description: str = ""
    ) -> ServiceAccountOut:
        """Make a service account, or change its description."""
        path, body = f"/service-accounts/{segment(name)}", {"description": description}
        return await self._transport.ask(
            "PUT", path, ServiceAccountOut, parameters={"scope": scope}, body=body
        )

    async def delete_service_account(self, name: str) -> None:
        """Remove a service account, its tokens and its roles."""
        await self._transport.send("DELETE", f"/service-accounts/{segment(name)}")

    async def create_service_token(self, name: str, days: int = 90) -> NewToken:
        """Make a token of a service account; it is told this once."""
        path = f"/service-accounts/{segment(name)}/tokens"
        return await self._transport.ask("POST", path, NewToken, body={"days": days})

    async def revoke_service_token(self, name: str, token_id: str) -> None:
        """Make a token of a service account good for nothing."""
        path = f"/service-accounts/{segment(name)}/tokens/{segment(token_id)}"
        await self._transport.send("DELETE", path)
