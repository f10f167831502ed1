"""The listener for commits of other processes survives whatever ends its connection."""

import asyncio
from typing import Any

import psycopg
import pytest

from carrel_scheduler.ledger.watches import listen
from carrel_scheduler.ledger.watches.listen import CommitListener
from carrel_scheduler.ledger.watches.watch import Notifier


@pytest.mark.parametrize(
    "failure",
    [psycopg.OperationalError("gone"), OSError("no route"), RuntimeError("unforeseen"), None],
)
async def test_it_listens_again(monkeypatch: pytest.MonkeyPatch, failure: Exception | None) -> None:
    tries = 0
    again = asyncio.Event()

    async def fail(_: CommitListener) -> None:
        nonlocal tries
        tries += 1
        if tries > 2:
            again.set()
            await asyncio.Event().wait()
        if failure is not None:
            raise failure

    monkeypatch.setattr(listen, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(CommitListener, "_listen", fail)
    engine: Any = None
    listener = CommitListener(engine, Notifier())
    async with asyncio.timeout(30):
        await again.wait()
    await listener.close()
