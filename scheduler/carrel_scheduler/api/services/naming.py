"""Numbers behind a name prefix: ``sweep-1``, ``sweep-2``, … the first free one.

The numbers taken are read from the ledger once and kept for a minute, so that a thousand
submissions do not read a thousand lists; a number freed by a deletion is given again after that.
"""

import re
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.ledger.store import ObjectStore
from carrel_schema.objects import Workload

KEEP_SECONDS: Final = 60.0
MOST_PREFIXES: Final = 256
PAGE: Final = 500


@dataclass(slots=True)
class _TakenNumbers:
    read_at: float
    taken: set[int]
    lowest: int = 1

    def take(self) -> int:
        while self.lowest in self.taken:
            self.lowest += 1
        self.taken.add(self.lowest)
        return self.lowest


class Naming:
    """Generates names; no two callers get the same one."""

    def __init__(self, store: ObjectStore, clock: Callable[[], float]) -> None:
        self._store, self._clock = store, clock
        self._known: OrderedDict[tuple[str, str], _TakenNumbers] = OrderedDict()

    async def next(self, project: str, prefix: str) -> str:
        """``<prefix>-<n>`` with the first free number."""
        key = (project, prefix)
        numbers = self._known.get(key)
        if numbers is None or self._clock() - numbers.read_at > KEEP_SECONDS:
            read = await self._read(project, prefix)
            # Another caller may have read meanwhile, and handed out numbers from it.
            newer = self._known.get(key)
            if newer is not None and newer is not numbers:
                read.taken |= newer.taken
            self._known[key] = numbers = read
        self._known.move_to_end(key)
        while len(self._known) > MOST_PREFIXES:
            self._known.popitem(last=False)
        return f"{prefix}-{numbers.take()}"

    async def _read(self, project: str, prefix: str) -> _TakenNumbers:
        pattern = re.compile(rf"{re.escape(prefix)}-([1-9][0-9]{{0,8}})")
        found, after = _TakenNumbers(self._clock(), set()), ""
        while True:
            page = await self._store.list(Workload, projects=[project], limit=PAGE, after=after)
            for workload in page.items:
                match = pattern.fullmatch(workload.meta.name)
                if match is not None:
                    found.taken.add(int(match[1]))
            after = page.next
            if not after:
                return found
