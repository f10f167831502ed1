"""Hears of commits of other processes on PostgreSQL (LISTEN), on a connection of its own.

A lost connection is made again; meanwhile watches query
at intervals, see ``sql_store.POLL_SECONDS``.
"""

import asyncio
import contextlib
import logging
from typing import Final

import psycopg
from sqlalchemy import Engine

from carrel_scheduler.ledger.watches.watch import CHANNEL, Notifier

RETRY_SECONDS: Final = 1.0
_log = logging.getLogger(__name__)


class CommitListener:
    """Tells the notifier of announced commits; belongs to the event loop it is made in."""

    def __init__(self, engine: Engine, notifier: Notifier) -> None:
        self._engine, self._notifier = engine, notifier
        self._task = asyncio.get_running_loop().create_task(self._serve(), name="ledger-listener")

    async def close(self) -> None:
        """Stop listening."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _serve(self) -> None:
        while True:
            try:
                await self._listen()
            except Exception as error:  # noqa: BLE001 - whatever it is, it listens again
                trace = None if isinstance(error, psycopg.Error | OSError) else error
                _log.warning(
                    "lost the connection that announces changes: %s", error, exc_info=trace
                )
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self) -> None:
        _, settings = self._engine.dialect.create_connect_args(self._engine.url)
        async with await psycopg.AsyncConnection.connect(**settings, autocommit=True) as connection:
            await connection.execute(f"LISTEN {CHANNEL}")
            # There may have been news before it listened.
            self._notifier.announce()
            async for _ in connection.notifies():
                self._notifier.announce()
