"""The logs of all tasks of a workload as one, each line behind the name of the task that wrote it.

Lines stand in the order of the times at which they were written. While following, a line does not
wait for tasks that are silent: what arrives within moments is sorted, the rest comes as it comes.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Final

from carrel_scheduler.engines.contract import UnknownTask

STAMP_BYTES: Final = len("2026-01-01T00:00:00.000000Z ")
PIECE_BYTES: Final = 1 << 16
SORTED_WITHIN_SECONDS: Final = 0.05


class _Source:
    """One task's log, line by line, each with the time at which it was written."""

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


async def merged(
    logs: Mapping[str, AsyncIterator[bytes]], *, timestamps: bool, follow: bool
) -> AsyncGenerator[bytes, None]:
    """The lines of many logs as one.

    Args:
        logs: by task name, each with a time before every line.
        timestamps: whether the times stay.
        follow: whether lines are passed on before every log has said something.

    Raises:
        UnknownTask: none of the logs is there.
    """
    sources = [_Source(name, pieces) for name, pieces in logs.items()]
    reading: dict[asyncio.Task[None], _Source] = {}
    try:
        while live := [one for one in sources if one.head is not None or not one.ended]:
            await _read(live, reading, follow=follow)
            if piece := _sorted_lines(live, timestamps=timestamps):
                yield piece
        if not any(one.found for one in sources):
            raise UnknownTask("no task of it has a log")
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        for one in sources:
            await one.close()


async def _read(
    live: Sequence[_Source], reading: dict[asyncio.Task[None], _Source], *, follow: bool
) -> None:
    """Wait for lines of the logs without a pending one."""
    asked = set(reading.values())
    for source in live:
        if source.head is None and source not in asked:
            reading[asyncio.create_task(source.more())] = source
    if not reading:
        return
    waits = any(one.head is not None for one in live)
    if follow and not waits:
        await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)
    done, _ = await asyncio.wait(reading, timeout=SORTED_WITHIN_SECONDS if follow else None)
    for task in done:
        del reading[task]
        task.result()


def _sorted_lines(live: Sequence[_Source], *, timestamps: bool) -> bytes:
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
