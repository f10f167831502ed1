"""Reading a task's output: numbered segments that its supervisor writes, with indexes of times.

``shim.logwriter`` has the format. Positions are (segment, offset); reading goes on across segments
and starts anew at the oldest one when the one wanted is gone.
"""

import asyncio
import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import LogRequest
from carrel_scheduler.engines.local import inotify
from carrel_scheduler.engines.streams import lines_of

BLOCK: Final = 65536
_ENTRY: Final = struct.Struct(">QQ")


class Position(msgspec.Struct, frozen=True, order=True):
    """A place in the output."""

    segment: int
    offset: int


class LogChunk(msgspec.Struct, frozen=True):
    """Consecutive output of one segment."""

    at: Position
    data: bytes


class TimeIndex:
    """The times at which the bytes of a segment were written."""

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, -1
        self._offsets: list[int] = []
        self._times: list[float] = []

    def load(self) -> None:
        """Read the file again if it grew."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        usable = len(data) - len(data) % _ENTRY.size
        if usable != self._size:
            self._size = usable
            entries = list(_ENTRY.iter_unpack(data[:usable]))
            self._offsets = [offset for offset, _ in entries]
            self._times = [micros / 1e6 for _, micros in entries]

    def time_at(self, offset: int) -> float:
        """The time at which the byte at the offset was written, epoch seconds; 0.0 when unknown."""
        place = bisect_right(self._offsets, offset) - 1
        return self._times[place] if place >= 0 else 0.0

    def first_since(self, since: float) -> int | None:
        """Offset of the first entry not older than ``since``."""
        place = bisect_left(self._times, since)
        return self._offsets[place] if place < len(self._times) else None


class Segments:
    """The segments of one task's output, in its ``log`` folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def numbers(self) -> list[int]:
        """The existing segments, oldest first."""
        try:
            names = [entry.name for entry in os.scandir(self._folder)]
        except FileNotFoundError:
            return []
        return sorted(int(name[:-4]) for name in names if name.endswith(".out"))

    def index(self, segment: int) -> TimeIndex:
        """The times of a segment."""
        return TimeIndex(self._folder / f"{segment:08d}.at")

    def start(self) -> Position:
        """The position of the oldest output."""
        return Position(next(iter(self.numbers()), 0), 0)

    def since(self, moment: float) -> Position:
        """The first line begun at ``moment`` (epoch seconds) or later."""
        numbers = self.numbers()
        for number in numbers:
            index = self.index(number)
            index.load()
            offset = index.first_since(moment)
            if offset is not None:
                return Position(number, self._line_start(number, offset))
        return self._end(numbers)

    def tail(self, lines: int) -> Position:
        """The position at which the last ``lines`` lines begin; reads backwards."""
        numbers = self.numbers()
        if lines <= 0 or not numbers:
            return self._end(numbers)
        wanted, at_end = lines, True
        for number in reversed(numbers):
            path = self._path(number)
            if not path.exists():
                break
            offset, wanted = _last_lines(path, wanted, final=at_end)
            if wanted == 0:
                return Position(number, offset)
            at_end = at_end and path.stat().st_size == 0
        return self.start()

    def _line_start(self, number: int, offset: int) -> int:
        with self._path(number).open("rb") as file:
            if offset == 0:
                return 0
            file.seek(offset - 1)
            file.readline()
            return file.tell()

    def _end(self, numbers: list[int]) -> Position:
        if not numbers:
            return Position(0, 0)
        return Position(numbers[-1], self._path(numbers[-1]).stat().st_size)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.out"

    def read(self, position: Position) -> LogChunk | None:
        """The output at the position (perhaps in a later segment); ``None`` for none yet."""
        while True:
            numbers = self.numbers()
            if not numbers:
                return None
            if position.segment not in numbers and position.segment < numbers[0]:
                position = Position(numbers[0], 0)
            # Asked before reading: a segment that has a successor grows no more.
            later = [number for number in numbers if number > position.segment]
            try:
                with self._path(position.segment).open("rb") as file:
                    file.seek(position.offset)
                    data = file.read(BLOCK)
            except FileNotFoundError:
                data = b""
            if data:
                return LogChunk(position, data)
            if not later:
                return None
            position = Position(later[0], 0)


def _last_lines(path: Path, wanted: int, *, final: bool) -> tuple[int, int]:
    """Offset of the ``wanted``-th last line of a file, and how many more are to be found.

    A newline at the very end of the ``final`` output ends its last line and begins no other.
    """
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        ends_line = final
        while end > 0:
            start = max(0, end - BLOCK)
            file.seek(start)
            block = file.read(end - start)
            stop = len(block) - 1 if ends_line and block.endswith(b"\n") else len(block)
            ends_line = False
            while (found := block.rfind(b"\n", 0, stop)) >= 0:
                wanted, stop = wanted - 1, found
                if wanted == 0:
                    return start + found + 1, 0
            end = start
    return 0, wanted


async def read_log(
    folder: Path,
    request: LogRequest,
    notices: inotify.Inotify,
    alive: Callable[[], bool],
) -> AsyncIterator[bytes]:
    """The output of a task from its ``log`` folder; ``alive``: whether more may come."""
    segments = Segments(folder)
    position = first_position(segments, request)
    stamp = LineTimestamps(segments) if request.timestamps else None
    changed = asyncio.Event()
    watching = _watch_growth(folder, notices, changed) if request.follow else nullcontext()
    with watching:
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


def first_position(segments: Segments, request: LogRequest) -> Position:
    """The later of the two positions that ``since`` and ``tail_lines`` allow."""
    position = segments.start()
    if request.since is not None:
        position = max(position, segments.since(request.since))
    if request.tail_lines is not None:
        position = max(position, segments.tail(request.tail_lines))
    return position


def _watch_growth(folder: Path, notices: inotify.Inotify, changed: asyncio.Event) -> ExitStack:
    """Set the event whenever the output or the state of its task changes."""
    stop = ExitStack()
    for path, mask in (
        (folder, inotify.MODIFIED | inotify.CREATED),
        (folder.parent, inotify.MOVED_IN | inotify.WRITER_CLOSED),
    ):
        stop.callback(notices.watch(path, mask, lambda _: changed.set()))
    return stop


class LineTimestamps:
    """Puts the time at which it was written before each line (RFC 3339, UTC, microseconds)."""

    def __init__(self, segments: Segments) -> None:
        self._segments = segments
        self._index: TimeIndex | None = None
        self._segment = -1
        self._at_line_start = True

    def __call__(self, piece: LogChunk) -> bytes:
        """The piece with times."""
        if self._index is None or self._segment != piece.at.segment:
            self._segment = piece.at.segment
            self._index = self._segments.index(self._segment)
        self._index.load()
        parts: list[bytes] = []
        offset = piece.at.offset
        for line in lines_of(piece.data):
            if self._at_line_start:
                parts.append(_stamp(self._index.time_at(offset)))
            parts.append(line)
            offset += len(line)
            self._at_line_start = line.endswith(b"\n")
        return b"".join(parts)


def _stamp(moment: float) -> bytes:
    text = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ ")
    return text.encode()
