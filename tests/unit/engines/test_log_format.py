"""The log writer and the reader agree, whatever comes in whatever pieces."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carrel_scheduler.engines.contract import LogRequest
from carrel_scheduler.engines.local.logs import (
    LineTimestamps,
    LogChunk,
    Position,
    Segments,
    first_position,
)
from carrel_scheduler.engines.local.shim import logwriter
from carrel_scheduler.engines.local.shim.logwriter import LogWriter


class Clock:
    """Stands in for the writer's clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(logwriter, "time", clock)
    return clock


def everything(folder: Path, start: Position | None = None) -> bytes:
    segments = Segments(folder)
    position, found = start or segments.start(), b""
    while piece := segments.read(position):
        found += piece.data
        position = Position(piece.at.segment, piece.at.offset + len(piece.data))
    return found


pieces = st.lists(st.binary(max_size=60) | st.just(b"\n") | st.just(b"a line\n"), max_size=40)


@given(pieces=pieces, limit=st.integers(1, 80))
@settings(max_examples=150, deadline=None)
def test_bytes_come_back_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    writer = LogWriter(str(folder), limit, 10_000)
    for piece in pieces:
        if piece:
            writer.write(piece)
    writer.close()
    assert everything(folder) == b"".join(pieces)


@given(pieces=pieces, limit=st.integers(1, 80), lines=st.integers(0, 12))
@settings(max_examples=150, deadline=None)
def test_tail_is_the_last_lines(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], limit: int, lines: int
) -> None:
    folder = tmp_path_factory.mktemp("log")
    writer = LogWriter(str(folder), limit, 10_000)
    for piece in pieces:
        if piece:
            writer.write(piece)
    writer.close()
    whole = b"".join(pieces)
    parts = whole.split(b"\n")
    all_lines = [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
    wanted = all_lines[-lines:] if lines else []
    start = first_position(Segments(folder), LogRequest(tail_lines=lines))
    assert everything(folder, start) == b"".join(wanted)


def test_a_segment_ends_after_a_line_and_the_oldest_go(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 10, 2)
    for _ in range(5):
        writer.write(b"12345\n789\n")
    writer.write(b"x\n")
    writer.close()
    assert Segments(tmp_path).numbers() == [4, 5]
    assert everything(tmp_path) == b"12345\n789\nx\n"
    assert len(list(tmp_path.iterdir())) == 4


def test_times_are_those_of_the_beginning_of_each_line(tmp_path: Path, clock: Clock) -> None:
    writer = LogWriter(str(tmp_path), 1000, 2)
    writer.write(b"one\ntw")
    clock.now = 1001.5
    writer.write(b"o\nthree\n")
    writer.close()
    stamped = LineTimestamps(Segments(tmp_path))(LogChunk(Position(0, 0), b"one\ntwo\nthree\n"))
    assert stamped == (
        b"1970-01-01T00:16:40.000000Z one\n"
        b"1970-01-01T00:16:40.000000Z two\n"
        b"1970-01-01T00:16:41.500000Z three\n"
    )


def test_a_carriage_return_ends_no_line(tmp_path: Path, clock: Clock) -> None:
    writer = LogWriter(str(tmp_path), 1000, 2)
    writer.write(b"10%\r20%\r")
    writer.close()
    stamped = LineTimestamps(Segments(tmp_path))(LogChunk(Position(0, 0), b"10%\r20%\r"))
    assert stamped == b"1970-01-01T00:16:40.000000Z 10%\r20%\r"


@pytest.mark.parametrize(
    ("since", "wanted"),
    [(0.0, b"one\ntwo\nthree\n"), (1000.5, b"three\n"), (1001.0, b"three\n"), (1001.1, b"")],
)
def test_since_begins_with_a_line_begun_by_then(
    tmp_path: Path, clock: Clock, since: float, wanted: bytes
) -> None:
    writer = LogWriter(str(tmp_path), 1000, 2)
    writer.write(b"one\ntw")
    clock.now = 1001.0
    writer.write(b"o\nthree\n")
    writer.close()
    start = first_position(Segments(tmp_path), LogRequest(since=since))
    assert everything(tmp_path, start) == wanted


def test_the_later_of_two_bounds_counts(tmp_path: Path, clock: Clock) -> None:
    writer = LogWriter(str(tmp_path), 1000, 2)
    writer.write(b"1\n2\n")
    clock.now = 1001.0
    writer.write(b"3\n4\n")
    writer.close()
    for tail, wanted in ((1, b"4\n"), (3, b"3\n4\n")):
        request = LogRequest(tail_lines=tail, since=1000.5)
        assert everything(tmp_path, first_position(Segments(tmp_path), request)) == wanted


def test_a_reader_that_was_overtaken_goes_on_with_the_oldest(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path), 4, 1)
    for number in range(5):
        writer.write(b"%03d\n" % number)
    writer.close()
    assert everything(tmp_path, Position(0, 0)) == b"004\n"


def test_a_full_disk_is_said_once_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    writer = LogWriter(str(tmp_path), 1000, 2)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    writer.write(b"a\n")
    writer.write(b"b\n")
    monkeypatch.undo()
    writer.write(b"c\n")
    writer.close()
    assert capsys.readouterr().err.count("No space left") == 1
    assert everything(tmp_path) == b"c\n"


def test_nothing_written_is_nothing_to_read(tmp_path: Path) -> None:
    for request in (LogRequest(), LogRequest(tail_lines=3), LogRequest(since=5.0)):
        assert first_position(Segments(tmp_path / "none"), request) == Position(0, 0)
    assert everything(tmp_path / "none") == b""
