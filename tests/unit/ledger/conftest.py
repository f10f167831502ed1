"""Settings of the ledger's unit tests."""

import asyncio

# Or the first asynchronous test makes asyncio invent a loop that nobody closes.
asyncio.set_event_loop(None)
