"""Assets: written by users and administrators, put together into requests before validation."""

from collections.abc import Mapping, Sequence

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.services.governance.documents import Documents, check_fields
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.policy.assets import PREFIX, TYPES, UsableAssets, asset_of
from carrel_schema.governance.assets import (
    FIELDS_OF,
    AssetFields,
    AssetOut,
    AssetType,
    problem_of,
)
from carrel_schema.governance.policies import Bound
from carrel_schema.scopes import Scope


class AssetService:
    """Reads, writes and puts together."""

    def __init__(self, deps: ApiDependencies) -> None:
        kinds = [PREFIX + one for one in TYPES]
        self._documents = Documents(deps, kinds, "assets", "asset")

    async def visible(self, principal: Principal, scope: Scope | None) -> Sequence[AssetOut]:
        """Assets that the caller may use."""
        return [_out(one) for one in await self._documents.visible(principal, scope)]

    async def get(self, kind: AssetType, name: str, scope: Scope, principal: Principal) -> AssetOut:
        """Read an asset; raises ``Missing``."""
        return _out(await self._documents.get(PREFIX + kind, name, scope, principal))

    async def put(
        self, kind: AssetType, name: str, scope: Scope, fields: AssetFields, principal: Principal
    ) -> AssetOut:
        """Make one, or replace it; raises ``InvalidRequest`` for fields that are not its type's."""
        _check(kind, fields)
        content = msgspec.structs.replace(fields, expected_version=None)
        key = (PREFIX + kind, name, scope)
        version = fields.expected_version
        return _out(await self._documents.put(key, content, principal, expected_version=version))

    async def delete(self, kind: AssetType, name: str, scope: Scope, principal: Principal) -> None:
        """Remove one; raises ``Missing``, ``PermissionDenied``."""
        await self._documents.delete(PREFIX + kind, name, scope, principal)

    async def refresh(self) -> None:
        """Read the assets again, if it is due."""
        await self._documents.refresh()

    def department(self, project: str) -> str:
        """The department of a project, if known."""
        return self._documents.departments.get(project, "")

    def usable(self, scopes: Sequence[Scope], bounds: Mapping[str, Bound]) -> UsableAssets:
        """The assets that work in these scopes may use, see ``policy.assets``."""
        return UsableAssets(self._documents.known, scopes, bounds)


def _check(kind: AssetType, asked: AssetFields) -> None:
    if kind == "data-source":
        if asked.data is None or asked.fields:
            raise problems.invalid_field(
                "data", Code.MISSING_FIELD, None, "`data`, and no `fields`"
            )
        wrong = problem_of(asked.data)
        if wrong is not None:
            raise problems.invalid_field(wrong[0], Code.WRONG_FORM, "", wrong[1])
        return
    if asked.data is not None or not asked.fields:
        raise problems.invalid_field("fields", Code.MISSING_FIELD, None, "`fields`, and no `data`")
    known = FIELDS_OF[kind]
    check_fields(
        asked.fields,
        asked.fields.keys() - known,
        f"one of {', '.join(sorted(known))}, which {kind} assets say",
    )


def _out(record: ScopedRecord) -> AssetOut:
    found = asset_of(record)
    return AssetOut(
        type=record.kind.removeprefix(PREFIX),
        name=record.name,
        scope=str(record.scope),
        version=record.version,
        description=found.description,
        fields=found.fields,
        data=found.data,
        changed_at=record.changed_at,
        changed_by=record.changed_by,
    )
