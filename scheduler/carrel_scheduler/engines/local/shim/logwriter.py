"""A task's output on disk: byte for byte, in segments, with a small index of times.

``log/<n>.out`` holds the bytes; ``log/<n>.at`` holds pairs of eight-byte numbers (offset in the
segment, microseconds since the epoch), at most one per ten milliseconds. A segment ends after a
line; the oldest go once there are more than allowed.
"""

import os
import sys
import time

INDEX_EVERY_SECONDS = 0.01
LONGEST_LINE = 1024 * 1024
END_BYTES = 2048


def complain(text: str) -> None:
    """Write to standard error, as far as the disk of that file allows it."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        return


class LogWriter:
    """Writes one task's output in segments of ``segment_bytes`` or more, of which it keeps some.

    ``end`` is the end of the output, for the message why the task failed.
    """

    def __init__(self, folder: str, segment_bytes: int, segments: int) -> None:
        self._folder, self._limit, self._keep = folder, segment_bytes, segments
        self._number, self._size, self._indexed_at, self._full = 0, 0, 0.0, False
        self._line_ended, self.end = True, b""
        self._out, self._at = self._open(self._number)

    def _open(self, number: int) -> tuple[int, int]:
        # Not O_EXCL: a try that failed for want of disk space may have left one of the two.
        flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND
        base = f"{self._folder}/{number:08d}"
        out = os.open(base + ".out", flags, 0o600)
        try:
            return out, os.open(base + ".at", flags, 0o600)
        except OSError:
            os.close(out)
            raise

    def write(self, data: bytes) -> None:
        """Append output. On a full disk output is lost, never the task; reported once."""
        self.end = (self.end + data)[-END_BYTES:] if len(data) < END_BYTES else data[-END_BYTES:]
        try:
            self._write(data)
        except OSError as error:
            if not self._full:
                complain(f"output is being lost: {error}")
            self._full = True

    def _write(self, data: bytes) -> None:
        while data:
            if self._is_full():
                self._rotate()
            room = max(self._limit - self._size, 1)
            end = data.find(b"\n", room - 1) + 1 or len(data)
            self._append(data[:end])
            data = data[end:]

    def _is_full(self) -> bool:
        if self._line_ended:
            return self._size >= self._limit
        return self._size >= self._limit + LONGEST_LINE

    def _append(self, data: bytes) -> None:
        now = time.time()
        if now - self._indexed_at >= INDEX_EVERY_SECONDS or self._size == 0:
            record = self._size.to_bytes(8, "big") + int(now * 1e6).to_bytes(8, "big")
            os.write(self._at, record)
            self._indexed_at = now
        rest = memoryview(data)
        while rest:
            written = os.write(self._out, rest)
            self._size += written
            rest = rest[written:]
        self._line_ended = data.endswith(b"\n")

    def _rotate(self) -> None:
        # First the new ones: if there is no disk space for them, what is open stays so.
        out, at = self._open(self._number + 1)
        self.close()
        self._out, self._at = out, at
        self._number += 1
        self._size = 0
        oldest = self._number - self._keep
        if oldest >= 0:
            for suffix in (".at", ".out"):
                os.unlink(f"{self._folder}/{oldest:08d}{suffix}")  # noqa: PTH108 - as above

    def close(self) -> None:
        """End the segment."""
        os.close(self._out)
        os.close(self._at)
