"""Assets: written by users and administrators, put together into requests before validation."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

import msgspec

from carrel_scheduler.api import problems
from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.principals.identity import Principal
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.services.governance.documents import Documents, check_fields
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_schema.governance.assets import (
    FIELDS_OF,
    AssetFields,
    AssetOut,
    AssetType,
    DataSource,
    problem_of,
)
from carrel_schema.scopes import Scope

PREFIX: Final = "asset-"
TYPES: Final[tuple[AssetType, ...]] = get_args(AssetType)
NAMED_BY: Final[Mapping[str, AssetType]] = {"environment": "environment", "compute": "compute"}
"""The parts of a request's ``assets`` that fill its fields, with their types."""


class Assets:
    """Reads, writes and puts together."""

    def __init__(self, deps: ApiDependencies) -> None:
        kinds = [PREFIX + one for one in TYPES]
        self._documents = Documents(deps, kinds, "assets", "asset")

    async def visible(self, principal: Principal, scope: Scope | None) -> Sequence[AssetOut]:
        """Those that the caller may use."""
        return [_out(one) for one in await self._documents.visible(principal, scope)]

    async def get(self, kind: AssetType, name: str, scope: Scope, principal: Principal) -> AssetOut:
        """One; raises ``Missing``."""
        return _out(await self._documents.get(PREFIX + kind, name, scope, principal))

    async def put(
        self, kind: AssetType, name: str, scope: Scope, fields: AssetFields, principal: Principal
    ) -> AssetOut:
        """Make one, or replace it; raises ``Invalid`` for fields that are not its type's."""
        _check(kind, fields)
        content = msgspec.structs.replace(fields, expected_version=None)
        key = (PREFIX + kind, name, scope)
        version = fields.expected_version
        return _out(await self._documents.put(key, content, principal, expected_version=version))

    async def delete(self, kind: AssetType, name: str, scope: Scope, principal: Principal) -> None:
        """Remove one; raises ``Missing``, ``Forbidden``."""
        await self._documents.delete(PREFIX + kind, name, scope, principal)

    async def refresh(self) -> None:
        """Read them anew if it is time to."""
        await self._documents.refresh()

    def department(self, project: str) -> str:
        """The department of a project, as far as it is known."""
        return self._documents.departments.get(project, "")

    def under(self, layer: Mapping[str, Any], scopes: Sequence[Scope]) -> dict[str, Any]:
        """The fields that the environment and the compute resource of a layer say.

        Raises ``Invalid`` for an asset that is not there for this work.
        """
        named = layer.get("assets")
        found: dict[str, Any] = {}
        if isinstance(named, dict):
            for part, kind in NAMED_BY.items():
                name = named.get(part)
                if isinstance(name, str) and name:
                    found |= self._find(f"assets.{part}", kind, name, scopes).fields
        return found

    def with_data(self, body: dict[str, Any], scopes: Sequence[Scope]) -> dict[str, Any]:
        """A request with what its data sources add. Raises ``Invalid``."""
        named = body.get("assets")
        names = named.get("data_sources") if isinstance(named, dict) else None
        for number, name in enumerate(names if isinstance(names, list) else ()):
            if isinstance(name, str):
                field = f"assets.data_sources.{number}"
                found = self._find(field, "data-source", name, scopes)
                if found.data is not None:
                    body = _added(body, name, found.data, field)
        return body

    def _find(self, field: str, kind: AssetType, name: str, scopes: Sequence[Scope]) -> AssetFields:
        there = [
            one
            for one in self._documents.known
            if one.kind == PREFIX + kind and one.scope in scopes
        ]
        found = [one for one in there if one.name == name]
        if found:
            return _read(found[-1])
        known = ", ".join(f"`{one}`" for one in sorted({one.name for one in there}))
        right = f"one of {known}" if known else f"none: there is no {kind} for you here"
        raise problems.invalid_field(field, Code.UNKNOWN_ASSET, name, right)


def _added(body: dict[str, Any], name: str, data: DataSource, field: str) -> dict[str, Any]:
    """A request with one data source; what it says itself at the same place wins.

    Where it says something of another form, that stays as it is: validation tells what is wrong.
    """
    if data.kind in ("folder", "claim"):
        asked = body.get("volumes") or []
        if not isinstance(asked, list):
            return body
        volume = {
            "source": data.source,
            "destination": data.destination,
            "read_only": data.read_only,
        }
        taken = {str(one.get("destination")) for one in asked if isinstance(one, dict)}
        return body if data.destination in taken else {**body, "volumes": [*asked, volume]}
    if data.kind == "git":
        asked = body.get("repositories") or []
        if not isinstance(asked, list):
            return body
        one = {
            "git": data.source,
            "destination": data.destination,
            "revision": data.revision,
            "secret": data.secret,
        }
        return {**body, "repositories": [*asked, one]}
    given = body.get("environment") or {}
    if not isinstance(given, dict):
        return body
    variables = _s3_variables(name, data)
    for variable, text in variables.items():
        if variable.startswith("AWS_") and given.get(variable, text) != text:
            right = f"left out: {variable} is said by the request or another data source already"
            raise problems.invalid_field(field, Code.INVALID, name, right)
    return {**body, "environment": {**variables, **given}}


def _s3_variables(name: str, data: DataSource) -> dict[str, str]:
    found = {f"DATA_{name.upper().replace('-', '_').replace('.', '_')}": data.source}
    if data.endpoint:
        found["AWS_ENDPOINT_URL"] = data.endpoint
    if data.region:
        found["AWS_DEFAULT_REGION"] = data.region
    if data.secret:
        found["AWS_ACCESS_KEY_ID"] = f"SECRET:{data.secret},access_key_id"
        found["AWS_SECRET_ACCESS_KEY"] = f"SECRET:{data.secret},secret_access_key"
    return found


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


def _read(record: ScopedRecord) -> AssetFields:
    return msgspec.json.decode(record.content, type=AssetFields)


def _out(record: ScopedRecord) -> AssetOut:
    found = _read(record)
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
