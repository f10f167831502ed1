"""Work that is done again and again beside the decisions, and whose errors end nothing else."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NoReturn


async def run_periodically(
    once: Callable[[], Awaitable[float | None]],
    pause_seconds: float,
    log: logging.Logger,
    failure: str,
) -> NoReturn:
    """Call ``once`` again and again, until cancelled.

    Args:
        once: does it; returns after how many seconds to go on, ``None``: after ``pause_seconds``.
        pause_seconds: between the end and the next beginning, also after an error.
        log: is warned of errors, with the traceback.
        failure: what an error means, as "no sample was taken".
    """
    while True:
        pause: float | None = None
        try:
            pause = await once()
        except Exception:  # whatever it is, it must not end the scheduler
            log.warning(failure, exc_info=True)
        await asyncio.sleep(pause_seconds if pause is None else pause)
