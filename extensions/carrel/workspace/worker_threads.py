"""Threads of anyio's pool, which would keep a server from ending.

``anyio.to_thread`` keeps a thread that has nothing to do, and the interpreter waits for it when it
ends. It goes when the task that began the first of its calls is done; of a server that is told to
stop, that may be one that goes on for ever. The spawner then waits out its grace period and kills
the process.
"""

import threading
from contextlib import suppress
from queue import Full
from typing import Any, Final

NAME: Final = "AnyIO worker thread"


def end_idle_threads() -> int:
    """Have the pool's threads end; returns how many were there.

    One that is busy ends when its call is done, so that nothing is lost. Called when no more calls
    come: the pool would otherwise give them to a thread that is gone.
    """
    found: list[Any] = [one for one in threading.enumerate() if one.name == NAME]
    for thread in found:
        with suppress(AttributeError, Full):  # another anyio, or it was told already
            thread.queue.put_nowait(None)
    return len(found)
