"""Samples in SQL; see ``ledger.samples``."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, func, select

from carrel_scheduler.ledger.columns.codec import insert_tuples
from carrel_scheduler.ledger.columns.tables import samples as table
from carrel_scheduler.ledger.group_commit import GroupCommit, Transaction
from carrel_schema.samples import Sample, Step

_COLUMNS = ("step", "subject", "at", "content")


class SqlSamples:
    """See ``Samples``.

    Args:
        writer: of the ledger that they are in.
        read: runs a query in a snapshot of its own.
    """

    def __init__(
        self, writer: GroupCommit, read: Callable[[Callable[[Connection], Any]], Any]
    ) -> None:
        self._writer, self._query = writer, read

    async def add(self, step: Step, at: int, means: Mapping[str, Sample]) -> None:
        """See ``Samples``."""
        rows = [
            (step, subject, at, msgspec.json.encode(one).decode()) for subject, one in means.items()
        ]

        def write(transaction: Transaction) -> None:
            transaction.connection.execute(
                delete(table).where(table.c.step == step, table.c.at == at)
            )
            insert_tuples(transaction.connection, table, _COLUMNS, rows)

        await self._writer.run(write)

    async def read(
        self, step: Step, subjects: Sequence[str], since: float, until: float
    ) -> Mapping[str, Sequence[tuple[int, Sample]]]:
        """See ``Samples``."""
        query = (
            select(table.c.subject, table.c.at, table.c.content)
            .where(table.c.step == step, table.c.subject.in_(subjects))
            .where(table.c.at >= since, table.c.at < until)
            .order_by(table.c.at)
        )

        def run(connection: Connection) -> dict[str, list[tuple[int, Sample]]]:
            found: defaultdict[str, list[tuple[int, Sample]]] = defaultdict(list)
            for subject, at, content in connection.execute(query):
                found[subject].append((at, msgspec.json.decode(content, type=Sample)))
            return dict(found)

        found: dict[str, list[tuple[int, Sample]]] = await self._query(run)
        return found

    async def of_span(self, step: Step, since: int, until: int) -> Mapping[str, Sequence[Sample]]:
        """See ``Samples``."""
        query = select(table.c.subject, table.c.content).where(
            table.c.step == step, table.c.at >= since, table.c.at < until
        )

        def run(connection: Connection) -> dict[str, list[Sample]]:
            found: defaultdict[str, list[Sample]] = defaultdict(list)
            for subject, content in connection.execute(query):
                found[subject].append(msgspec.json.decode(content, type=Sample))
            return dict(found)

        found: dict[str, list[Sample]] = await self._query(run)
        return found

    async def latest(self, step: Step) -> int | None:
        """See ``Samples``."""
        query = select(func.max(table.c.at)).where(table.c.step == step)
        found: int | None = await self._query(lambda connection: connection.scalar(query))
        return found

    async def prune(self, step: Step, before: float) -> int:
        """See ``Samples``."""

        def write(transaction: Transaction) -> int:
            done = transaction.connection.execute(
                delete(table).where(table.c.step == step, table.c.at < before)
            )
            return int(done.rowcount)

        return await self._writer.run(write)
