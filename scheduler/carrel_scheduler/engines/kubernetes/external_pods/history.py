"""History that an earlier scheduler left open: guests that ended while nobody looked.

Each start closes the open rows of all guests; those that still run begin a new row as they are
found, so use is counted without a gap and nothing is counted for ever.
"""

from typing import Final

import msgspec

from carrel_scheduler.engines.kubernetes.external_pods.rows import HOLDS
from carrel_scheduler.ledger.records import Ledger, Transition
from carrel_schema.kinds import KINDS

LOOKED_AT: Final = 50_000
DAYS_SECONDS: Final = 31 * 86_400.0


async def close_left_open(ledger: Ledger, *, epoch: int, now: float) -> int:
    """Close the rows of guests that hold something; returns how many that were.

    Raises what the ledger raises.
    """
    last: dict[str, Transition] = {}
    for row in await ledger.transitions(since=now - DAYS_SECONDS, limit=LOOKED_AT):
        if row.kind not in KINDS:
            last[row.workload_uid] = row
    open_rows = [row for row in last.values() if row.to_phase == HOLDS]
    closing = [_closed(row, epoch, now) for row in open_rows]
    if closing:
        await ledger.record(epoch=epoch, statuses=(), transitions=closing)
    return len(closing)


def _closed(row: Transition, epoch: int, now: float) -> Transition:
    return msgspec.structs.replace(
        row,
        id=0,
        at=max(now, row.at),
        epoch=epoch,
        from_phase=row.to_phase,
        to_phase="ended",
        gpu_milli=0,
        cpu_milli=0,
        memory_bytes=0,
        borrowed=False,
        node="",
        devices=(),
    )
