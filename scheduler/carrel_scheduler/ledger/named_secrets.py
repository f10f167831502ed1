"""Named secrets in the ledger: scoped records whose values are encrypted by the ledger's keys.

What is encrypted names the secret that it belongs to, so that nobody who writes to the database
gives one the values of another.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from carrel_scheduler.ledger.scoped_records import ScopedRecord, ScopedRecords
from carrel_scheduler.ledger.secret_keys import SecretKeys
from carrel_scheduler.ledger.store import ObjectNotFound
from carrel_schema.governance.secrets import SecretFields, SecretOut, SecretType
from carrel_schema.scopes import Scope

KIND: Final = "secret"


class StoredSecret(msgspec.Struct, frozen=True, kw_only=True):
    """A stored secret; ``encrypted`` holds the values."""

    type: SecretType
    description: str
    keys: list[str]
    encrypted: str


class NamedSecrets:
    """Reads and writes named secrets.

    Args:
        records: where they are.
        keys: that encrypt them.
    """

    def __init__(self, records: ScopedRecords, keys: SecretKeys) -> None:
        self._records, self._keys = records, keys

    async def put(self, name: str, scope: Scope, fields: SecretFields, actor: str) -> SecretOut:
        """Create a secret, or replace its values.

        Raises ``ObjectExists``, ``VersionConflict``, ``ObjectNotFound`` for another version than
        expected, and ``SecretsUnreadable`` where values are to be kept that no key fits.
        """
        values = dict(fields.data)
        if fields.keep_others:
            values = {**(await self.values(name, scope) or {}), **values}
        content = StoredSecret(
            type=fields.type,
            description=fields.description,
            keys=sorted(values),
            encrypted=self._keys.encrypt(owner_of(scope, name), values),
        )
        record = ScopedRecord(
            kind=KIND, scope=scope, name=name, content=msgspec.Raw(msgspec.json.encode(content))
        )
        made = await self._records.put(
            record, actor=actor, expected_version=fields.expected_version
        )
        return told(made)

    async def list(self, scopes: Sequence[Scope] | None = None) -> Sequence[SecretOut]:
        """The secrets in these scopes, or all, without their values."""
        return [told(one) for one in await self._records.list(KIND, scopes=scopes)]

    async def values(self, name: str, scope: Scope) -> Mapping[str, str] | None:
        """The values of a secret; ``None`` for an unknown one. Raises ``SecretsUnreadable``."""
        try:
            record = await self._records.get(KIND, scope, name)
        except ObjectNotFound:
            return None
        return self._keys.decrypt(owner_of(scope, name), content_of(record).encrypted)

    async def nearest(self, name: str, scopes: Sequence[Scope]) -> Mapping[str, str] | None:
        """The values of the secret of a name in the last of these scopes that has one."""
        for scope in reversed(scopes):
            found = await self.values(name, scope)
            if found is not None:
                return found
        return None

    async def remove(self, name: str, scope: Scope) -> None:
        """Remove one; raises ``ObjectNotFound``."""
        await self._records.remove(KIND, scope, name)


def owner_of(scope: Scope, name: str) -> str:
    """The owner that is encrypted together with the values."""
    return f"secret {scope} {name}"


def content_of(record: ScopedRecord) -> StoredSecret:
    """The stored content of a record."""
    return msgspec.json.decode(record.content, type=StoredSecret)


def told(record: ScopedRecord) -> SecretOut:
    """The public part of a secret."""
    content = content_of(record)
    return SecretOut(
        name=record.name,
        scope=str(record.scope),
        type=content.type,
        description=content.description,
        keys=content.keys,
        version=record.version,
        changed_at=record.changed_at,
        changed_by=record.changed_by,
    )
