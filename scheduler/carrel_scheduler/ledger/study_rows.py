"""The logs of studies in SQL: append-only, numbered from 0 without a gap."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, bindparam, func, insert, select
from sqlalchemy.exc import IntegrityError

from carrel_scheduler.ledger.schema import study_log
from carrel_scheduler.ledger.store import Conflict, NotFound

_LENGTH: Final = select(func.max(study_log.c.number)).where(
    study_log.c.workload_uid == bindparam("uid")
)
_NEW: Final = insert(study_log)


def append(connection: Connection, uid: str, entries: Sequence[str], first: int) -> None:
    """Append entries; raises ``Conflict`` where the log is not ``first`` long, ``NotFound``."""
    last = connection.execute(_LENGTH, {"uid": uid}).scalar_one()
    length = 0 if last is None else last + 1
    if length != first:
        raise Conflict(f"the study of {uid} has {length} entries, not {first}")
    rows = [
        {"workload_uid": uid, "number": number, "entry": entry}
        for number, entry in enumerate(entries, start=first)
    ]
    if not rows:
        return
    try:
        connection.execute(_NEW, rows)
    except IntegrityError as error:
        raise NotFound(f"no experiment with uid {uid!r}") from error


def read(connection: Connection, uid: str, first: int, limit: int | None) -> Sequence[str]:
    """Entries from ``first`` on, in their order."""
    query = (
        select(study_log.c.entry)
        .where(study_log.c.workload_uid == uid, study_log.c.number >= first)
        .order_by(study_log.c.number)
        .limit(limit)
    )
    return connection.execute(query).scalars().all()
