"""Results by the ledger: times, waits, and that each workload ran exactly once."""

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec


class Results(msgspec.Struct, frozen=True):
    """Seconds since the first submission; ``waits`` by class, to the first place of a workload."""

    seconds: float
    submitted_seconds: float
    core_seconds: float
    evictions: int
    waits: dict[str, float]


def read_results(database: Path, began: float, count: int) -> Results:
    """Read a ledger that nobody writes any more; raises ``RuntimeError`` if something is amiss."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        _check(connection, count)
        (last,) = connection.execute(
            "SELECT max(at) FROM transitions WHERE to_phase = 'succeeded'"
        ).fetchone()
        (submitted,) = connection.execute("SELECT max(created_at) FROM objects").fetchone()
        (used,) = connection.execute(
            "SELECT sum(cpu_milli * (ended - at)) / 1000.0 FROM (SELECT to_phase, cpu_milli, at,"
            " lead(at) OVER (PARTITION BY workload_uid ORDER BY id) AS ended FROM transitions)"
            " WHERE to_phase IN ('starting', 'running', 'preempting')"
        ).fetchone()
        (evictions,) = connection.execute(
            "SELECT count(*) FROM transitions WHERE to_phase = 'preempting'"
        ).fetchone()
        waits = connection.execute(
            "SELECT substr(workload, 1, instr(workload, '-') - 1), avg(first - created) FROM"
            " (SELECT workload, min(at) FILTER (WHERE to_phase = 'starting') AS first,"
            " min(at) AS created FROM transitions GROUP BY workload_uid) GROUP BY 1 ORDER BY 1"
        ).fetchall()
    return Results(last - began, submitted - began, used, evictions, dict(waits))


def _check(connection: sqlite3.Connection, count: int) -> None:
    phases = dict(
        connection.execute(
            "SELECT phase, count(*) FROM objects WHERE kind = 'Workload' GROUP BY phase"
        ).fetchall()
    )
    if phases != {"succeeded": count}:
        raise RuntimeError(f"not all {count} workloads succeeded: {phases}")
    (twice,) = connection.execute(
        "SELECT count(*) FROM (SELECT workload_uid FROM transitions WHERE to_phase = 'succeeded'"
        " GROUP BY workload_uid HAVING count(*) > 1)"
    ).fetchone()
    if twice:
        raise RuntimeError(f"{twice} workloads ended twice")
