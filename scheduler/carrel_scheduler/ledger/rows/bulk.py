"""Writing many rows with few statements.

SQLite runs inside this process: each statement, and each row of a driver's "execute many", gives
the interpreter away and has to win it back, which takes milliseconds while another thread works.
So rows are written dozens to a statement, in sizes that recur, so that the driver finds its
prepared statements again. PostgreSQL gets all rows at once, which its driver sends together.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import Connection, Table, insert

# Of columns as wide as ours 128 rows stay well below the number of parameters that SQLite allows.
SIZES: Final = (128, 32, 8, 1)


def insert_many(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows that all have the same columns, in their order."""
    if not rows:
        return
    if connection.dialect.name != "sqlite":
        connection.execute(insert(table), rows)
        return
    names = tuple(rows[0])
    insert_tuples(connection, table, names, list(map(itemgetter(*names), rows)))


def insert_tuples(
    connection: Connection, table: Table, names: tuple[str, ...], rows: Sequence[tuple[Any, ...]]
) -> None:
    """The same for rows of values, in the order of the columns' names."""
    if connection.dialect.name != "sqlite":
        insert_many(connection, table, [dict(zip(names, row, strict=True)) for row in rows])
        return
    for part in pieces(rows):
        values = tuple(chain.from_iterable(part))
        connection.exec_driver_sql(_insert(table.name, names, len(part)), values)


def pieces(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The rows in pieces of the sizes above, as few as possible."""
    start = 0
    for size in SIZES:
        while len(rows) - start >= size:
            yield rows[start : start + size]
            start += size


def placeholders(columns: int, rows: int) -> str:
    """``(?,?),(?,?)`` for two columns and two rows."""
    return ",".join([f"({','.join('?' * columns)})"] * rows)


@cache
def _insert(table: str, names: Sequence[str], rows: int) -> str:
    columns = ",".join(f'"{name}"' for name in names)
    return f"INSERT INTO {table} ({columns}) VALUES {placeholders(len(names), rows)}"  # noqa: S608 - names of our schema
