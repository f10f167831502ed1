"""Named secrets: who may see and write which. Values come in and never go out."""

from collections.abc import Sequence

from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.ledger.errors import SecretsUnreadable
from carrel_scheduler.ledger.scoped_records import scope_exists
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_schema.governance.secrets import SecretFields, SecretOut, missing_keys
from carrel_schema.objects import Project
from carrel_schema.scopes import Scope


class Secrets:
    """Reads and writes the secrets to which the caller has access."""

    def __init__(self, deps: ApiDependencies) -> None:
        self._deps = deps

    async def visible(self, principal: Principal, scope: Scope | None) -> Sequence[SecretOut]:
        """Secrets that the caller's work may use; all for administrators."""
        found = await self._deps.ledger.named_secrets.list(None if scope is None else [scope])
        if principal.sees_all or not found:
            return found
        projects = (await self._deps.ledger.list(Project)).items
        departments = {one.spec.department for one in projects if principal.sees(one.meta.name)}

        def seen(one: Scope) -> bool:
            return (
                one.level == "platform"
                or (one.level == "department" and one.name in departments)
                or principal.may("secrets:read", one)
            )

        return [one for one in found if seen(Scope.parse(one.scope))]

    async def get(self, name: str, scope: Scope, principal: Principal) -> SecretOut:
        """Read a secret, without its values; raises ``Missing``."""
        for one in await self.visible(principal, scope):
            if one.name == name:
                return one
        raise _missing(name, scope)

    async def put(
        self, name: str, scope: Scope, fields: SecretFields, principal: Principal
    ) -> SecretOut:
        """Write a secret and its values.

        Raises ``PermissionDenied``, ``InvalidRequest``, ``Conflicting``.
        """
        before = await self._check_author(name, scope, principal)
        kept = before.keys if before is not None and fields.keep_others else ()
        missing = missing_keys(fields.type, (*fields.data, *kept))
        if missing:
            named = ", ".join(f"`{key}`" for key in missing)
            raise problems.invalid_field(
                "data", Code.MISSING_FIELD, None, f"also {named}, which a {fields.type} secret has"
            )
        try:
            return await self._deps.ledger.named_secrets.put(name, scope, fields, principal.name)
        except (ObjectExists, VersionConflict, ObjectNotFound) as error:
            raise problems.Conflicting(Code.CONFLICT, str(error)) from error
        except SecretsUnreadable as error:
            raise problems.Conflicting(
                Code.CONFLICT, f"The values of `{name}` cannot be read any more; give all anew"
            ) from error

    async def delete(self, name: str, scope: Scope, principal: Principal) -> None:
        """Remove one; raises ``Missing``, ``PermissionDenied``."""
        await self.get(name, scope, principal)
        await self._check_author(name, scope, principal)
        await self._deps.ledger.named_secrets.remove(name, scope)

    async def _check_author(
        self, name: str, scope: Scope, principal: Principal
    ) -> SecretOut | None:
        """The existing secret. Raises an error if the caller may not write it."""
        manages = principal.may("secrets:manage", scope)
        if manages:
            await self._check_scope(scope)
        elif scope.level in ("platform", "department"):
            raise problems.not_permitted("secrets:manage", str(scope))
        elif not principal.may("secrets:read", scope):
            raise _missing(name, scope)
        elif not principal.may("secrets:create", scope):
            raise problems.not_permitted("secrets:create", str(scope))
        there = await self._deps.ledger.named_secrets.list([scope])
        before = next((one for one in there if one.name == name), None)
        if before is not None and not manages and before.changed_by != principal.name:
            raise problems.PermissionDenied(
                Code.NOT_THE_OWNER, f"`{name}` was written by {before.changed_by}"
            )
        return before

    async def _check_scope(self, scope: Scope) -> None:
        if not await scope_exists(self._deps.ledger, scope):
            raise problems.Missing(
                Code.NOT_FOUND, f"There is no {scope.level} `{scope.name}` that you can see"
            )


def _missing(name: str, scope: Scope) -> problems.Missing:
    return problems.Missing(
        Code.NOT_FOUND, f"There is no secret `{name}` of {scope} that you can see"
    )
