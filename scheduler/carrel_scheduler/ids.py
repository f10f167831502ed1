"""New uids: 128 bits that begin with the time.

Who is created together lies together in the indices of the ledger, so a commit changes few of their
pages. The rest is random, drawn for many at once: asking the kernel is slow.
"""

import os
import time
from typing import Final

RANDOM_BYTES: Final = 10
AT_ONCE: Final = 100

_fresh: list[str] = []


def new_id() -> str:
    """32 hexadecimal digits: 12 of milliseconds, then 20 random ones."""
    if not _fresh:
        drawn, digits = os.urandom(RANDOM_BYTES * AT_ONCE).hex(), 2 * RANDOM_BYTES
        _fresh.extend(drawn[start : start + digits] for start in range(0, len(drawn), digits))
    return f"{time.time_ns() // 1_000_000:012x}{_fresh.pop()}"
