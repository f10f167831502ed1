"""Reading a task's output, from where and in which form the reader wants, as it grows."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from carrel_scheduler.engines.local import inotify
from carrel_scheduler.engines.local.segments import Piece, Position, Segments, TimeIndex


class LogRequest(msgspec.Struct, frozen=True, kw_only=True):
    """See ``engines.contract.Engine.logs``."""

    tail_lines: int | None = None
    since: float | None = None
    timestamps: bool = False
    follow: bool = False


async def read_log(
    folder: Path,
    request: LogRequest,
    notices: inotify.Inotify,
    alive: Callable[[], bool],
) -> AsyncIterator[bytes]:
    """Output of the task whose ``log`` folder this is.

    Args:
        folder: of the segments.
        request: what is wanted.
        notices: tells of growth.
        alive: whether more may come.
    """
    segments = Segments(folder)
    position = first_position(segments, request)
    stamp = Stamper(segments) if request.timestamps else None
    changed = asyncio.Event()
    stop_watching = _watch_growth(folder, notices, changed) if request.follow else lambda: None
    try:
        while True:
            changed.clear()
            more_may_come = request.follow and alive() and not notices.closed
            piece = segments.read(position)
            if piece is not None:
                position = Position(piece.at.segment, piece.at.offset + len(piece.data))
                yield stamp(piece) if stamp else piece.data
                await asyncio.sleep(0)
            elif more_may_come:
                await changed.wait()
            else:
                return
    finally:
        stop_watching()


def first_position(segments: Segments, request: LogRequest) -> Position:
    """Where to begin: the later of what the two bounds allow."""
    position = segments.start()
    if request.since is not None:
        position = max(position, segments.since(request.since))
    if request.tail_lines is not None:
        position = max(position, segments.tail(request.tail_lines))
    return position


def _watch_growth(
    folder: Path, notices: inotify.Inotify, changed: asyncio.Event
) -> Callable[[], None]:
    """Set the event whenever output or the state of its task changes."""

    def listener(_name: str) -> None:
        changed.set()

    grown = notices.watch(folder, inotify.MODIFIED | inotify.CREATED, listener)
    ended = notices.watch(folder.parent, inotify.MOVED_IN | inotify.WRITER_CLOSED, listener)

    def stop() -> None:
        grown()
        ended()

    return stop


class Stamper:
    """Puts the time at which it was written before each line (RFC 3339, UTC, microseconds)."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._index: TimeIndex | None = None
        self._segment = -1
        self._at_line_start = True

    def __call__(self, piece: Piece) -> bytes:
        """The piece with times."""
        if self._index is None or self._segment != piece.at.segment:
            self._segment = piece.at.segment
            self._index = self._segments.index(self._segment)
        self._index.load()
        parts: list[bytes] = []
        offset = piece.at.offset
        for line in _lines(piece.data):
            if self._at_line_start:
                parts.append(_stamp(self._index.time_at(offset)))
            parts.append(line)
            offset += len(line)
            self._at_line_start = line.endswith(b"\n")
        return b"".join(parts)


def _lines(data: bytes) -> list[bytes]:
    """Split after newlines only (``splitlines`` also splits at carriage returns)."""
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _stamp(moment: float) -> bytes:
    text = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ")
    return text.encode()
