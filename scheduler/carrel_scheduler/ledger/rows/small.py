"""Encrypted secrets, idempotency keys, settings, the logs of studies and the size in SQL.

The log of a study is only appended to, and its entries are numbered from 0 without a gap.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, insert, select, text
from sqlalchemy.exc import IntegrityError

from carrel_scheduler.ledger.columns.tables import idempotency_keys, secrets, settings, study_log
from carrel_scheduler.ledger.store import ObjectNotFound, VersionConflict

KEY_LIFETIME_SECONDS: Final = 86_400.0
_FORGET_SECRETS: Final = delete(secrets).where(secrets.c.workload_uid == bindparam("uid"))
_NEW_SECRETS: Final = insert(secrets)
_SECRETS: Final = select(secrets.c.workload_uid, secrets.c.environment)
_SECRETS_OF: Final = _SECRETS.where(secrets.c.workload_uid.in_(bindparam("uids", expanding=True)))
# Well below the number of parameters that a statement may have.
_AT_ONCE: Final = 500
_OLD_KEYS: Final = delete(idempotency_keys).where(idempotency_keys.c.at <= bindparam("cutoff"))
_KEY: Final = select(idempotency_keys.c.digest, idempotency_keys.c.workload_uid).where(
    idempotency_keys.c.scope == bindparam("scope"), idempotency_keys.c.key == bindparam("key")
)
_NEW_KEY: Final = insert(idempotency_keys)
_STUDY_LENGTH: Final = select(func.max(study_log.c.number)).where(
    study_log.c.workload_uid == bindparam("uid")
)
_NEW_ENTRIES: Final = insert(study_log)
_SIZES: Final = {
    "sqlite": text("SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"),
    "postgresql": text("SELECT pg_database_size(current_database())"),
}


def write_secrets(connection: Connection, uid: str, encrypted: str) -> None:
    """Replace the secrets of a workload, or remove them if empty; raises ``ObjectNotFound``."""
    connection.execute(_FORGET_SECRETS, {"uid": uid})
    add_secrets(connection, uid, encrypted)


def add_secrets(connection: Connection, uid: str, encrypted: str) -> None:
    """Write the secrets, if any, of a workload that has none; raises ``ObjectNotFound``."""
    if not encrypted:
        return
    row = {"workload_uid": uid, "environment": encrypted}
    try:
        connection.execute(_NEW_SECRETS, row)
    except IntegrityError:
        # The statement's error shows its parameters: not to be chained.
        raise ObjectNotFound(f"no workload with uid {uid!r}") from None


def read_secrets(connection: Connection, uids: Sequence[str] | None = None) -> dict[str, str]:
    """The encrypted secrets of those workloads that have any, by uid; of all without ``uids``."""
    if uids is None:
        return dict(map(tuple, connection.execute(_SECRETS)))
    found: dict[str, str] = {}
    for start in range(0, len(uids), _AT_ONCE):
        part = {"uids": uids[start : start + _AT_ONCE]}
        found |= dict(map(tuple, connection.execute(_SECRETS_OF, part)))
    return found


def claim_key(
    connection: Connection, scope: str, key: str, digest: str, uid: str, now: float
) -> tuple[str, str]:
    """Remember a key unless it is known; returns (digest, uid) of its first use."""
    connection.execute(_OLD_KEYS, {"cutoff": now - KEY_LIFETIME_SECONDS})
    row = connection.execute(_KEY, {"scope": scope, "key": key}).one_or_none()
    if row is not None:
        return row.digest, row.workload_uid
    new = {"scope": scope, "key": key, "digest": digest, "workload_uid": uid, "at": now}
    connection.execute(_NEW_KEY, new)
    return digest, uid


def read_settings(connection: Connection) -> Mapping[str, Any]:
    """All settings."""
    return {row.key: msgspec.json.decode(row.value) for row in connection.execute(select(settings))}


def write_setting(connection: Connection, key: str, value: str) -> None:
    """Set one; ``value`` is JSON."""
    connection.execute(delete(settings).where(settings.c.key == key))
    connection.execute(insert(settings), {"key": key, "value": value})


def size_bytes(connection: Connection) -> int:
    """The size of the database."""
    return int(connection.execute(_SIZES[connection.dialect.name]).scalar_one())


def append_study(connection: Connection, uid: str, entries: Sequence[str], first: int) -> None:
    """Append entries.

    Raises ``VersionConflict`` where the log is not ``first`` long, ``ObjectNotFound``.
    """
    last = connection.execute(_STUDY_LENGTH, {"uid": uid}).scalar_one()
    length = 0 if last is None else last + 1
    if length != first:
        raise VersionConflict(f"the study of {uid} has {length} entries, not {first}")
    rows = [
        {"workload_uid": uid, "number": number, "entry": entry}
        for number, entry in enumerate(entries, start=first)
    ]
    if not rows:
        return
    try:
        connection.execute(_NEW_ENTRIES, rows)
    except IntegrityError as error:
        raise ObjectNotFound(f"no experiment with uid {uid!r}") from error


def read_study(connection: Connection, uid: str, first: int, limit: int | None) -> Sequence[str]:
    """Entries from ``first`` on, in their order."""
    query = (
        select(study_log.c.entry)
        .where(study_log.c.workload_uid == uid, study_log.c.number >= first)
        .order_by(study_log.c.number)
        .limit(limit)
    )
    return connection.execute(query).scalars().all()
