"""One writing transaction: the store's counters, locked from its first statement to its commit.

Because every writer holds that lock, versions are committed in their order, by however many
processes: whoever sees version 7 will never see a 6 appear later.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self

from sqlalchemy import (
    ColumnElement,
    Connection,
    delete,
    select,
    tuple_,
    update,
)

from carrel_scheduler.ledger.audit import rows as audit_rows
from carrel_scheduler.ledger.audit.actor import Actor
from carrel_scheduler.ledger.rows.bulk import insert_many
from carrel_scheduler.ledger.rows.tables import changes, objects, specs, store_state
from carrel_scheduler.ledger.watches.recent_commits import Commit, Fresh, Identities
from carrel_schema.governance.audit import AuditEntry
from carrel_schema.objects import Meta

CHANNEL: Final = "carrel_changes"
_LOCK: Final = select(
    store_state.c.version, store_state.c.dropped_through, store_state.c.epoch
).with_for_update()
_SAVE: Final = update(store_state)
# Old changes are dropped this many at a time, so that few commits pay for it.
_DROP_AT_ONCE: Final = 500


class Mark(NamedTuple):
    """Where a call began."""

    version: int
    epoch: int
    changes: int
    fresh: int
    entries: int


class Transaction:
    """Counters and pending changes of one group of calls.

    Attributes:
        version: the store's version so far.
        epoch: that of the present scheduler.
        actor: who asked for the present call; ``None``: the scheduler itself.
        tells_of_objects: changes of objects are told to the audit log where they are written.
    """

    def __init__(
        self,
        connection: Connection,
        known: Identities,
        counters: tuple[int, int, int],
    ) -> None:
        version, dropped_through, epoch = counters
        self.connection, self.version, self.epoch = connection, version, epoch
        self._dropped_through = dropped_through
        self._begun_with = (version, epoch)
        self._changes: list[dict[str, Any]] = []
        self._fresh: list[Fresh] = []
        self._known = known
        self._seen: dict[str, Meta] = {}
        self._entries: list[AuditEntry] = []
        self.actor: Actor | None = None
        self.tells_of_objects = True

    @classmethod
    def begin(cls, connection: Connection, known: Identities | None = None) -> Self:
        """Lock the counters; ``known`` has the identities from earlier transactions."""
        version, dropped_through, epoch = connection.execute(_LOCK).one()
        counters = (version, dropped_through, epoch)
        return cls(connection, Identities() if known is None else known, counters)

    def next_version(self) -> int:
        """A new version for one change."""
        self.version += 1
        return self.version

    def add_change(self, columns: dict[str, Any], fresh: Fresh | None = None) -> None:
        """A row for watches, written with all others at the end.

        ``fresh`` is the same for watches of this process, unless only a status changed.
        That is safe only because nothing in it can be refused: all of it was stored before, as
        part of the object, by the call that adds it.
        """
        self._changes.append(columns)
        if fresh is not None:
            self._fresh.append(fresh)

    def add_entries(self, entries: Iterable[AuditEntry]) -> None:
        """Entries of the audit log, appended with all others at the end."""
        self._entries += entries
        if self.actor is not None:
            self.actor.recorded += 1

    def record(self, verb: str, kind: str, **change: Any) -> None:
        """Add a requested change to the audit log; see ``Actor``."""
        if self.actor is not None:
            self.add_entries([self.actor.entry_of_change(verb, kind, **change)])

    def remember(self, metas: Iterable[Meta]) -> None:
        """Keep the identities as this transaction leaves them."""
        for meta in metas:
            self._seen[meta.uid] = meta

    def remembered(self, uid: str, version: int) -> Meta | None:
        """The identity of an object at a version, if this process had to do with it lately."""
        meta = self._seen.get(uid) or self._known.get(uid)
        return meta if meta is not None and meta.resource_version == version else None

    def committed(self) -> None:
        """Whether what this transaction knows is valid for later ones."""
        self._known.keep(self._seen)

    def mark(self) -> Mark:
        """Remember where a call begins."""
        return Mark(
            self.version, self.epoch, len(self._changes), len(self._fresh), len(self._entries)
        )

    def rewind(self, mark: Mark) -> None:
        """Undo what a call did since the mark."""
        self.version, self.epoch = mark.version, mark.epoch
        self._seen.clear()
        del self._changes[mark.changes :], self._fresh[mark.fresh :]
        del self._entries[mark.entries :]

    def finish(self, keep_changes: int, sign: audit_rows.Sign) -> Commit | None:
        """Write what is pending; the caller commits. Returns the changes for watches."""
        if self._entries:
            audit_rows.append(self.connection, self._entries, sign)
        if (self.version, self.epoch) == self._begun_with:
            return None
        insert_many(self.connection, changes, self._changes)
        self._drop_old_changes(keep_changes)
        self.connection.execute(
            _SAVE,
            {
                "version": self.version,
                "epoch": self.epoch,
                "dropped_through": self._dropped_through,
            },
        )
        if self.connection.dialect.name == "postgresql":
            self.connection.exec_driver_sql(f"NOTIFY {CHANNEL}")
        if not self._changes:
            return None
        return Commit(self._begun_with[0], self.version, tuple(self._fresh))

    def _drop_old_changes(self, keep: int) -> None:
        through = self.version - keep
        if through - self._dropped_through < min(_DROP_AT_ONCE, max(1, keep // 10)):
            return
        dropped = changes.c.version <= through
        self.connection.execute(delete(specs).where(*_unused_specs(dropped)))
        self.connection.execute(delete(changes).where(dropped))
        self._dropped_through = through


def _unused_specs(dropped: ColumnElement[bool]) -> tuple[ColumnElement[bool], ...]:
    """Specifications in dropped changes to which nothing else refers."""
    key = tuple_(specs.c.uid, specs.c.generation)
    return (
        specs.c.uid.in_(select(changes.c.uid).where(dropped)),
        key.not_in(select(objects.c.uid, objects.c.generation).where(objects.c.uid == specs.c.uid)),
        key.not_in(
            select(changes.c.uid, changes.c.generation).where(
                changes.c.uid == specs.c.uid, ~dropped
            )
        ),
    )
