"""Documents of scopes: the common part of templates and assets.

One's own are anybody's to write; those of a project are made by its members and changed by who made
them; those of departments and the platform by who manages them there.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from carrel_scheduler.api import problems, refusals
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.models import validators
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.cached_value import CachedValue
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_schema.objects import Project
from carrel_schema.problems import FieldError
from carrel_schema.scopes import Scope
from carrel_schema.wire import WorkloadCreate

KNOWN_SECONDS: Final = 2.0


class Documents:
    """Documents of some kinds, cached for two seconds.

    Args:
        deps: of the application.
        kinds: of records.
        resource: of the permissions for them, as ``templates``.
        word: for people, as ``template``.
    """

    def __init__(
        self, deps: ApiDependencies, kinds: Sequence[str], resource: str, word: str
    ) -> None:
        self._deps, self._kinds, self._resource, self._word = deps, kinds, resource, word
        self.known: Sequence[ScopedRecord] = ()
        self.departments: Mapping[str, str] = {}
        self._records = CachedValue(self._read, KNOWN_SECONDS, deps.clock)

    async def visible(self, principal: Principal, scope: Scope | None) -> Sequence[ScopedRecord]:
        """Documents that the caller may use; all for administrators."""
        await self.refresh()
        departments = {
            department
            for project, department in self.departments.items()
            if principal.sees(project)
        }

        def seen(one: Scope) -> bool:
            return (
                principal.sees_all
                or one.level == "platform"
                or (one.level == "department" and one.name in departments)
                or principal.may(f"{self._resource}:read", one)
            )

        return [one for one in self.known if seen(one.scope) and scope in (None, one.scope)]

    async def get(self, kind: str, name: str, scope: Scope, principal: Principal) -> ScopedRecord:
        """Read a document; raises ``Missing``."""
        for one in await self.visible(principal, scope):
            if (one.kind, one.name) == (kind, name):
                return one
        raise self._missing(name, scope)

    async def put(
        self,
        key: tuple[str, str, Scope],
        content: msgspec.Struct,
        principal: Principal,
        *,
        expected_version: int | None,
        managed: bool = False,
    ) -> ScopedRecord:
        """Create a document, or replace it.

        Args:
            key: kind, name and scope.
            content: what is stored.
            principal: who writes it.
            expected_version: refused unless this is the stored one.
            managed: only who manages them in the scope may write this one.

        Raises ``PermissionDenied``, ``Missing``, ``Conflicting``.
        """
        kind, name, scope = key
        await self._check_author(kind, name, scope, principal, managed=managed)
        record = ScopedRecord(
            kind=kind, scope=scope, name=name, content=msgspec.Raw(msgspec.json.encode(content))
        )
        try:
            made = await self._deps.ledger.scoped.put(
                record, actor=principal.name, expected_version=expected_version
            )
        except (ObjectExists, VersionConflict, ObjectNotFound) as error:
            raise problems.Conflicting(Code.CONFLICT, str(error)) from error
        self._records.invalidate()
        return made

    async def delete(self, kind: str, name: str, scope: Scope, principal: Principal) -> None:
        """Remove one; raises ``Missing``, ``PermissionDenied``."""
        await self.get(kind, name, scope, principal)
        await self._check_author(kind, name, scope, principal, managed=False)
        await self._deps.ledger.scoped.remove(kind, scope, name)
        self._records.invalidate()

    async def refresh(self) -> None:
        """Read the documents again, if it is due."""
        self.known, self.departments = await self._records.get()

    async def _read(self) -> tuple[Sequence[ScopedRecord], Mapping[str, str]]:
        found: list[ScopedRecord] = []
        for kind in self._kinds:
            found += await self._deps.ledger.scoped.list(kind)
        projects = (await self._deps.ledger.list(Project)).items if found else ()
        return found, {one.meta.name: one.spec.department for one in projects}

    async def _check_author(
        self, kind: str, name: str, scope: Scope, principal: Principal, *, managed: bool
    ) -> None:
        manage, create = f"{self._resource}:manage", f"{self._resource}:create"
        if principal.may(manage, scope):
            return
        if managed or scope.level in ("platform", "department"):
            raise problems.not_permitted(manage, str(scope))
        if not principal.may(f"{self._resource}:read", scope):
            raise self._missing(name, scope)
        if not principal.may(create, scope):
            raise problems.not_permitted(create, str(scope))
        await self.refresh()
        for one in self.known:
            if (one.kind, one.scope, one.name) == (kind, scope, name) and (
                one.created_by != principal.name
            ):
                raise problems.PermissionDenied(
                    Code.NOT_THE_OWNER,
                    f"`{name}` was made by {one.created_by}; choose another name",
                )

    def _missing(self, name: str, scope: Scope) -> problems.Missing:
        return problems.Missing(
            Code.NOT_FOUND, f"There is no {self._word} `{name}` of {scope} that you can see"
        )


def check_fields(fields: Mapping[str, Any], refused: Collection[str], expected: str) -> None:
    """Check the fields of a document that belong to requests.

    Args:
        fields: by name.
        refused: names that such a document does not say.
        expected: what is right instead of those.

    Raises ``InvalidRequest`` for them and for values that no request may have.
    """
    errors = [
        FieldError(field=f"fields.{name}", code=Code.UNKNOWN_FIELD, value=None, expected=expected)
        for name in sorted(refused)
    ]
    asked = {name: one for name, one in fields.items() if name not in refused}
    try:
        validators.patch_of(WorkloadCreate).model_validate_json(msgspec.json.encode(asked))
    except ValidationError as error:
        told = refusals.from_validation(error, asked).errors
        errors += [msgspec.structs.replace(one, field=f"fields.{one.field}") for one in told]
    if errors:
        said = "; ".join(f"{one.field}: expected {one.expected}" for one in errors[:3])
        raise problems.InvalidRequest(errors[0].code, said, errors=errors)
