"""The rows of the past beside objects that lie elsewhere.

Every workload has an entry here, too: its identity without what it asks for. It holds the name for
one workload of its project, whatever its kind, keeps secrets and logs of studies with it, and is
written together with the first row, before the object is made. So a name is given once, and an
object without rows, or rows without an object, are what a crash left, and are mended.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from sqlalchemy import Connection, bindparam, delete, func, select

from carrel_scheduler.ledger import codec, history_rows, object_rows
from carrel_scheduler.ledger.open import KEEP_CHANGES, migrated
from carrel_scheduler.ledger.records import Decision, Fenced, Transition
from carrel_scheduler.ledger.schema import changes, objects, specs, store_state, transitions
from carrel_scheduler.ledger.sql_ledger import SqlLedger
from carrel_scheduler.ledger.transaction import Transaction
from carrel_schema.objects import Meta, Workload, WorkloadSpec

_EPOCH = select(store_state.c.epoch)
_LAST = select(transitions).where(
    transitions.c.id.in_(
        select(func.max(transitions.c.id))
        .where(transitions.c.workload_uid.in_(bindparam("uids", expanding=True)))
        .group_by(transitions.c.workload_uid)
    )
)
_WITHDRAW = tuple(
    delete(table).where(table.c[column] == bindparam("which"))
    for table, column in (
        (transitions, "workload_uid"),
        (changes, "uid"),
        (specs, "uid"),
        (objects, "uid"),
    )
)
# Well below the number of parameters that a statement may have.
_AT_ONCE = 500


def entry_of(workload: Workload) -> Workload:
    """What is kept here of a workload."""
    meta, spec = workload.meta, workload.spec
    identity = Meta(
        name=meta.name,
        project=meta.project,
        uid=meta.uid,
        created_at=meta.created_at,
        created_by=meta.created_by,
    )
    return Workload(meta=identity, spec=WorkloadSpec(kind=spec.kind, user=spec.user))


class Rows(SqlLedger):
    """See the module; made by ``open_rows``."""

    async def epoch(self) -> int:
        """That of the present scheduler."""
        return await self._read(lambda connection: int(connection.execute(_EPOCH).scalar_one()))

    async def write(
        self,
        epoch: int,
        rows: Sequence[Transition],
        decisions: Sequence[Decision],
        gone: Sequence[str] = (),
    ) -> None:
        """Append rows and drop the entries of what is gone; raises ``Fenced``."""
        arrivals, actions, uids = tuple(rows), tuple(decisions), tuple(gone)

        def append(transaction: Transaction) -> None:
            if epoch != transaction.epoch:
                raise Fenced(f"epoch {epoch} is over: the present one is {transaction.epoch}")
            there = object_rows.by_uids(transaction.connection, Workload, uids)
            object_rows.remove(transaction, list(there.values()))
            history_rows.add_transitions(transaction.connection, arrivals)
            history_rows.add_decisions(transaction.connection, actions)

        await self._writer.run(append, waits=True)

    async def withdraw(self, uid: str) -> None:
        """The workload was never made: its entry and its first row go."""

        def undo(transaction: Transaction) -> None:
            for statement in _WITHDRAW:
                transaction.connection.execute(statement, {"which": uid})

        await self._writer.run(undo, waits=True)

    async def drop(self, uid: str) -> None:
        """The workload is gone; what happened to it stays."""

        def remove(transaction: Transaction) -> None:
            there = object_rows.by_uids(transaction.connection, Workload, [uid])
            object_rows.remove(transaction, list(there.values()))

        await self._writer.run(remove, waits=True)

    async def last_of(self, uids: Sequence[str]) -> Mapping[str, Transition]:
        """The last row of each workload that has any."""
        found: dict[str, Transition] = {}
        for start in range(0, len(uids), _AT_ONCE):
            rows = await self._read(_last_rows, list(uids[start : start + _AT_ONCE]))
            found |= {row.workload_uid: row for row in rows}
        return found


def _last_rows(connection: Connection, uids: list[str]) -> list[Transition]:
    rows = connection.execute(_LAST, {"uids": uids}).mappings()
    return [codec.transition(dict(row)) for row in rows]


async def open_rows(url: str, *, clock: Callable[[], float], ids: Callable[[], str]) -> Rows:
    """Open the database of rows, see ``ledger.open``; raises ``LedgerNotUsable``."""
    database = await asyncio.to_thread(migrated, url)
    return Rows(database, clock=clock, ids=ids, keep_changes=KEEP_CHANGES)
