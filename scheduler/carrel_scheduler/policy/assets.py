"""Merges the assets that a request, a template or a policy names into a specification.

Pure but for ``AssetRecords``. Requests are filled before they are validated, manifests when they
are taken on; both ask here which asset a name means and what it adds. A policy's default is the
name of an asset of its own scope or of a wider one, so that nobody puts another in its place.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args

import msgspec

from carrel_scheduler.cached_value import CachedValue
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_schema.governance.assets import AssetFields, AssetType, DataSource
from carrel_schema.governance.policies import Bound, EffectiveRule
from carrel_schema.scopes import LEVELS, Scope

PREFIX: Final = "asset-"
TYPES: Final[tuple[AssetType, ...]] = get_args(AssetType)
NAMED_BY: Final[Mapping[str, AssetType]] = {"environment": "environment", "compute": "compute"}
"""The parts of a request's ``assets`` that fill its fields, with their types."""
DATA: Final = "data_sources"
INSTEAD: Final = frozenset({"gpus", "gpu_memory_bytes", "gpu_devices", "mig_profile"})
"""Ways to ask for GPUs: who says one takes none of the others from a template or an asset."""
KNOWN_SECONDS: Final = 2.0
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


class AssetRefused(Exception):  # noqa: N818 - an outcome to tell
    """An asset cannot be used; ``right`` names allowed ones, ``unknown``: it does not exist."""

    def __init__(self, where: str, name: str, right: str, *, unknown: bool = False) -> None:
        super().__init__(f"{where} is `{name}`: {right} is right")
        self.where, self.name, self.right, self.unknown = where, name, right, unknown


class AssetRecords:
    """Reads assets, and remembers them for two seconds.

    Args:
        ledger: where they are.
        clock: epoch seconds.
    """

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger = ledger
        self._known = CachedValue(self._read, KNOWN_SECONDS, clock)

    async def all(self) -> Sequence[ScopedRecord]:
        """All assets, those of a type from the widest scope to the narrowest."""
        return await self._known.get()

    async def _read(self) -> Sequence[ScopedRecord]:
        return [one for kind in TYPES for one in await self._ledger.scoped.list(PREFIX + kind)]


@dataclass(frozen=True, slots=True)
class UsableAssets:
    """The assets that a piece of work may use.

    Attributes:
        records: of all scopes.
        scopes: those that contain the work, from the widest to the narrowest.
        bounds: the parts of ``assets`` that a policy says, with where it says so.
    """

    records: Sequence[ScopedRecord]
    scopes: Sequence[Scope]
    bounds: Mapping[str, Bound] = field(default_factory=dict)

    def fields(self, named: Any) -> dict[str, Any]:
        """The fields that the environment and the compute resource set. Raises ``AssetRefused``.

        Args:
            named: the ``assets`` of a request; what is no mapping names none.
        """
        found: dict[str, Any] = {}
        if isinstance(named, dict):
            for part, kind in NAMED_BY.items():
                name = named.get(part)
                if isinstance(name, str) and name:
                    found |= self._find(part, f"assets.{part}", kind, name).fields
        return found

    def with_data(self, body: dict[str, Any]) -> dict[str, Any]:
        """A request with the fields of its data sources. Raises ``AssetRefused``."""
        named = body.get("assets")
        names = named.get(DATA) if isinstance(named, dict) else None
        for number, name in enumerate(names if isinstance(names, list) else ()):
            if isinstance(name, str):
                where = f"assets.{DATA}.{number}"
                found = self._find(DATA, where, "data-source", name)
                if found.data is not None:
                    body = _added(body, name, found.data, where)
        return body

    def names(self, part: str) -> list[str]:
        """The names of those that a part of ``assets`` may name, in order."""
        kind = PREFIX + (NAMED_BY.get(part) or "data-source")
        there = [one for one in self.records if one.kind == kind and one.scope in self.scopes]
        return sorted({one.name for one in there})

    def _find(self, part: str, where: str, kind: AssetType, name: str) -> AssetFields:
        bound, scopes = self._said_by_policy(part, name), self.scopes
        if bound is not None:
            scopes = _no_narrower(self.scopes, bound.scope)
        there = [one for one in self.records if one.kind == PREFIX + kind and one.scope in scopes]
        found = [one for one in there if one.name == name]
        if found:
            return asset_of(found[-1])
        known = ", ".join(f"`{one}`" for one in sorted({one.name for one in there}))
        right = f"one of {known}" if known else f"none: there is no {kind} for you here"
        if bound is not None:
            right = f"{right}; it is named by {bound.said_by}"
        raise AssetRefused(where, name, right, unknown=True)

    def _said_by_policy(self, part: str, name: str) -> Bound | None:
        bound = self.bounds.get(part)
        if bound is None:
            return None
        said = bound.value if isinstance(bound.value, list) else [bound.value]
        return bound if name in said else None


def _no_narrower(scopes: Sequence[Scope], scope: str) -> list[Scope]:
    level = LEVELS.index(Scope.parse(scope).level)
    return [one for one in scopes if LEVELS.index(one.level) <= level]


def named_by_policies(
    rules: Mapping[str, EffectiveRule], layers: Iterable[Mapping[str, Any]]
) -> dict[str, Bound]:
    """The parts of ``assets`` that policies say: where no layer does, or locked.

    Args:
        rules: merged, by path.
        layers: a request and its templates.
    """
    sections = [one for layer in layers if isinstance(one := layer.get("assets"), dict)]
    said = {part for one in sections for part, value in one.items() if value not in _EMPTY}
    found: dict[str, Bound] = {}
    for part in (*NAMED_BY, DATA):
        rule = rules.get(f"assets.{part}", EffectiveRule())
        bound = rule.locked or (None if part in said else rule.default)
        if bound is not None:
            found[part] = bound
    return found


def asset_of(record: ScopedRecord) -> AssetFields:
    """An asset as its author wrote it."""
    return msgspec.json.decode(record.content, type=AssetFields)


def _added(body: dict[str, Any], name: str, data: DataSource, where: str) -> dict[str, Any]:
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
            raise AssetRefused(where, name, right)
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
