"""Openings of one database for a test; clock and ids are counters."""

import itertools
from pathlib import Path

from carrel_scheduler.ledger.open import open_ledger
from carrel_scheduler.ledger.secret_keys import SecretKeys
from carrel_scheduler.ledger.sql_ledger import SqlLedger


class Ledgers:
    """Opens a database as often as asked, and closes what is open.

    Args:
        url: the database.
        keys_file: its keys, also of other processes; made when it is missing.
    """

    def __init__(self, url: str, keys_file: Path) -> None:
        self.url, self._keys_file = url, keys_file
        self._ids, self._ticks = itertools.count(), itertools.count(1)
        self._opened: list[SqlLedger] = []

    async def open(self, *, keep_changes: int = 50_000) -> SqlLedger:
        """Open the same data again."""
        ledger = await open_ledger(
            self.url,
            clock=lambda: 1_790_000_000.0 + next(self._ticks),
            ids=lambda: f"uid-{next(self._ids)}",
            keep_changes=keep_changes,
            keys=SecretKeys.load_or_create(self._keys_file),
        )
        assert isinstance(ledger, SqlLedger)
        self._opened.append(ledger)
        return ledger

    async def close(self) -> None:
        """Close whatever is open."""
        for ledger in self._opened:
            await ledger.close()
