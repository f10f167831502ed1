"""Listing objects and reading changes, each in the one snapshot of the connection it is given."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, Row, Select, and_, bindparam, exists, select

from carrel_scheduler.ledger.columns.codec import build, meta_from_json
from carrel_scheduler.ledger.columns.tables import changes, labels, objects, specs, store_state
from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.rows.objects import STORED, stored
from carrel_scheduler.ledger.store import Change, ChangeType, Expired, Page
from carrel_scheduler.ledger.watches.watch import Batch
from carrel_schema.objects import ObjectT

T = TypeVar("T")
CHANGES_AT_ONCE: Final = 256
Damaged = dict[str, tuple[str, Exception]]
"""Unreadable rows, by uid: ``PROJECT/NAME`` as far as it is known, and the error."""
_STATE: Final = select(store_state.c.version, store_state.c.dropped_through)
_CHANGES: Final = (
    select(changes, specs.c.spec)
    .join(specs, and_(specs.c.uid == changes.c.uid, specs.c.generation == changes.c.generation))
    .where(changes.c.version > bindparam("after"), changes.c.kind == bindparam("kind"))
    .order_by(changes.c.version)
    .limit(CHANGES_AT_ONCE)
)


class PageQuery(msgspec.Struct, frozen=True):
    """The page of a list, and its order; see ``ObjectStore.list``."""

    limit: int | None
    after: str
    newest_first: bool


def list_objects(
    connection: Connection,
    kind: type[ObjectT],
    filters: Mapping[str, Any],
    page: PageQuery,
    damaged: Damaged,
) -> Page[ObjectT]:
    """A page in creation order; ``filters`` are those of ``ObjectStore.list``.

    Objects that cannot be read are left out and put into ``damaged``.
    """
    query = _filtered(STORED.where(objects.c.kind == kind.__name__), **filters)
    made, limit = objects.c.created_version, page.limit
    if page.after:
        begin = _position(page.after)
        query = query.where(made < begin if page.newest_first else made > begin)
    query = query.order_by(made.desc() if page.newest_first else made)
    if limit is not None:
        if limit < 1:
            raise InvalidArgument("limit", limit, "at least 1")
        query = query.limit(limit + 1)
    version = connection.execute(_STATE).one().version
    rows = connection.execute(query).all()
    more = limit is not None and len(rows) > limit
    shown = rows[:limit]
    return Page(
        items=_readable(shown, lambda row: stored(kind, row).decode(), damaged),
        version=version,
        next=str(shown[-1].created_version) if more else "",
    )


def _position(after: str) -> int:
    if not (after.isascii() and after.isdigit() and len(after) < 19):
        raise InvalidArgument("after", after, "the `next` of a page")
    return int(after)


def _filtered(
    query: Select[Any],
    *,
    projects: Sequence[str] | None,
    phases: Sequence[str] | None,
    user: str | None,
    workload_kind: str | None,
    without_kinds: Sequence[str],
    wanted_labels: Mapping[str, str] | None,
    search: str,
) -> Select[Any]:
    if projects is not None:
        query = query.where(objects.c.project.in_(projects))
    if phases is not None:
        query = query.where(objects.c.phase.in_(phases))
    if user is not None:
        query = query.where(objects.c.user == user)
    if workload_kind is not None:
        query = query.where(objects.c.workload_kind == workload_kind)
    if without_kinds:
        query = query.where(objects.c.workload_kind.not_in(without_kinds))
    if search:
        name, person = objects.c.name, objects.c.user
        query = query.where(
            name.contains(search, autoescape=True) | person.contains(search, autoescape=True)
        )
    for key, value in (wanted_labels or {}).items():
        label = and_(labels.c.uid == objects.c.uid, labels.c.key == key, labels.c.value == value)
        query = query.where(exists().where(label))
    return query


def changes_after(
    connection: Connection, kind: type[ObjectT], cursor: int, damaged: Damaged
) -> Batch[ObjectT]:
    """Changes after a version, as many as fit one read; raises ``Expired``.

    Those that cannot be read are left out and put into ``damaged``.
    """
    newest, dropped_through = connection.execute(_STATE).one()
    if not dropped_through <= cursor <= newest:
        raise Expired(
            f"changes after version {cursor} are not kept (kept: after {dropped_through} up to"
            f" {newest}): list again"
        )
    if cursor == newest:
        return Batch((), cursor)
    rows = connection.execute(_CHANGES, {"after": cursor, "kind": kind.__name__}).all()

    def change(row: Row[Any]) -> Change[ObjectT]:
        obj = build(kind, meta_from_json(row.meta), row.spec, row.status)
        return Change(ChangeType(row.type), row.version, obj)

    full = len(rows) == CHANGES_AT_ONCE
    return Batch(_readable(rows, change, damaged), rows[-1].version if full else newest)


def _readable(rows: Sequence[Row[Any]], read: Callable[[Row[Any]], T], damaged: Damaged) -> list[T]:
    found: list[T] = []
    for row in rows:
        try:
            found.append(read(row))
        except (msgspec.MsgspecError, ValueError) as error:
            damaged[row.uid] = (_name_in(row), error)
    return found


def _name_in(row: Row[Any]) -> str:
    """The name in a row of ``objects``; a row of ``changes`` has it in what may be damaged."""
    return f"{row.project}/{row.name}".strip("/") if "name" in row._fields else ""
