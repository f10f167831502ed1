"""Many logs as one: of all tasks of a workload, or of work's parts; each line behind a name.

Lines stand in the order of the times at which they were written. While following, a line does not
wait for tasks that are silent: what arrives within moments is sorted, the rest comes as it comes.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, Final

from carrel_scheduler.engines.contract import UnknownTask

STAMP_BYTES: Final = len("2026-01-01T00:00:00.000000Z ")
PIECE_BYTES: Final = 1 << 16
SORTED_WITHIN_SECONDS: Final = 0.05


class _TaskLog:
    """The log of one task, line by line, each with the time at which it was written."""

    def __init__(self, name: str, pieces: AsyncIterator[bytes]) -> None:
        self.prefix = f"[{name}] ".encode()
        self.found = False
        self.ended = False
        self._pieces = pieces
        self._lines: list[bytes] = []
        self._begun = b""

    @property
    def head(self) -> bytes | None:
        """The next line, if it has been read already."""
        return self._lines[-1] if self._lines else None

    def take(self) -> bytes:
        """The next line, taken away."""
        return self._lines.pop()

    async def more(self) -> None:
        """Wait for a line or the end."""
        while not self._lines and not self.ended:
            try:
                piece = await anext(self._pieces, None)
            except UnknownTask:
                self.ended = True
                return
            self.found = True
            if piece is None:
                self.ended = True
                self._lines = [self._begun + b"\n"] if self._begun else []
                return
            *whole, self._begun = (self._begun + piece).split(b"\n")
            self._lines = [line + b"\n" for line in reversed(whole)]

    async def close(self) -> None:
        """Let the log go."""
        if isinstance(self._pieces, AsyncGenerator):
            await self._pieces.aclose()


Logs = Mapping[str, AsyncIterator[bytes]]


async def merged(
    logs: Logs,
    *,
    timestamps: bool,
    follow: bool,
    later: AsyncGenerator[Logs, None] | None = None,
) -> AsyncGenerator[bytes, None]:
    """The lines of many logs as one.

    Args:
        logs: by task name, each with a time before every line.
        timestamps: whether the times stay.
        follow: whether lines are passed on before every log has said something.
        later: further logs, as they begin; it ends when there will be no more.

    Raises:
        UnknownTask: none of the logs is there.
    """
    merging = _Merging(logs, later)
    try:
        while merging.goes_on:
            await merging.read(follow=follow)
            if piece := _sorted_lines(merging.live, timestamps=timestamps):
                yield piece
        if not merging.found:
            raise UnknownTask("no task of it has a log")
    finally:
        await merging.close()


class _Merging:
    """Logs that have not ended, and what is waited for.

    Attributes:
        live: those that have lines left, or may have.
        found: whether any of them was there.
    """

    def __init__(self, logs: Logs, later: AsyncGenerator[Logs, None] | None) -> None:
        self.live = [_TaskLog(name, pieces) for name, pieces in logs.items()]
        self.found = False
        self._later = later
        self._reading: dict[asyncio.Task[None], _TaskLog] = {}
        self._beginning = None if later is None else asyncio.create_task(anext(later, None))

    @property
    def goes_on(self) -> bool:
        """Whether anything may come."""
        ended = [one for one in self.live if one.head is None and one.ended]
        self.found = self.found or any(one.found for one in self.live)
        self.live = [one for one in self.live if one not in ended]
        return bool(self.live) or self._beginning is not None

    async def read(self, *, follow: bool) -> None:
        """Wait for lines of the logs without a pending one."""
        asked = set(self._reading.values())
        for source in self.live:
            if source.head is None and source not in asked:
                self._reading[asyncio.create_task(source.more())] = source
        beginning = [] if self._beginning is None else [self._beginning]
        waited: list[asyncio.Task[Any]] = [*self._reading, *beginning]
        if not waited:
            return
        if follow and all(one.head is None for one in self.live):
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        done, _ = await asyncio.wait(waited, timeout=SORTED_WITHIN_SECONDS if follow else None)
        if self._beginning in done:
            self._take_more()
        for task in done & self._reading.keys():
            del self._reading[task]
            task.result()

    def _take_more(self) -> None:
        """Take in logs that began."""
        if self._beginning is None or self._later is None:
            return
        logs = self._beginning.result()
        self._beginning = None
        if logs is not None:
            self.live += [_TaskLog(name, pieces) for name, pieces in logs.items()]
            self._beginning = asyncio.create_task(anext(self._later, None))

    async def close(self) -> None:
        """Let all of them go."""
        waited: list[asyncio.Task[Any]] = [*self._reading]
        if self._beginning is not None:
            waited.append(self._beginning)
        for task in waited:
            task.cancel()
        await asyncio.gather(*waited, return_exceptions=True)
        if self._later is not None:
            await self._later.aclose()
        for one in self.live:
            await one.close()


def _sorted_lines(live: Sequence[_TaskLog], *, timestamps: bool) -> bytes:
    """Lines in order of time, up to the first log that has to be read on."""
    ready = [one for one in live if one.head is not None]
    parts: list[bytes] = []
    size = 0
    while ready and size < PIECE_BYTES:
        first = min(ready, key=lambda one: (one.head or b"")[:STAMP_BYTES])
        line = first.take()
        parts += (first.prefix, line if timestamps else line[STAMP_BYTES:])
        size += len(line)
        if first.head is None:
            break
    return b"".join(parts)
