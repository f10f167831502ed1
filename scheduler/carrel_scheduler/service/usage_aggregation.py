"""Summing up finished work for accounting, beside a running scheduler (``ledger.rows.totals``).

A few transitions at a time, with pauses many times as long as that took: whoever writes to the
ledger waits for a short moment at most, also after an update that finds a year to sum up.
"""

import logging
from collections.abc import Callable
from typing import Final

from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.periodic import run_periodically

log = logging.getLogger(__name__)
AT_ONCE: Final = 1000
"""Transitions."""
PAUSE_SECONDS: Final = 60.0
REST: Final = 9.0
"""Pauses between two times are so many times as long as the first one took."""


class UsageAggregation:
    """Aggregates new transitions; ``clock`` is monotonic."""

    def __init__(self, ledger: Ledger, clock: Callable[[], float]) -> None:
        self._ledger, self._clock = ledger, clock

    async def run(self) -> None:
        """Aggregate again and again, until cancelled."""
        await run_periodically(self.once, PAUSE_SECONDS, log, "finished work was not summed up")

    async def once(self) -> float:
        """Aggregate some transitions; returns after how many seconds to go on."""
        began = self._clock()
        found = await self._ledger.aggregate_usage(AT_ONCE)
        return REST * (self._clock() - began) if found == AT_ONCE else PAUSE_SECONDS
