"""Lines of a log as nodes send them: in pieces cut anywhere, each behind its time."""

import pytest

from carrel_scheduler.engines.contract import EngineError, LogRequest
from carrel_scheduler.engines.kubernetes.tasks.logs import Lines

SENT = (
    b"2026-11-21T10:00:00.123456789Z one two\n"
    b"2026-11-21T10:00:00.5Z \n"
    b"2026-11-21T10:00:01Z a\rb\0\xff\n"
    b"2026-11-21T10:00:02.000000001Z no newline"
)
HALF_PAST = 1795255200.5


def taken(request: LogRequest, size: int) -> bytes:
    lines = Lines(request)
    return b"".join(lines.take(SENT[at : at + size]) for at in range(0, len(SENT), size))


@pytest.mark.parametrize("size", [1, 2, 7, 31, 1000])
def test_however_it_is_cut(size: int) -> None:
    assert taken(LogRequest(), size) == b"one two\n\na\rb\0\xff\nno newline"


@pytest.mark.parametrize("size", [1, 1000])
def test_times_in_microseconds(size: int) -> None:
    lines = taken(LogRequest(timestamps=True), size).split(b"\n")
    assert lines == [
        b"2026-11-21T10:00:00.123456Z one two",
        b"2026-11-21T10:00:00.500000Z ",
        b"2026-11-21T10:00:01.000000Z a\rb\0\xff",
        b"2026-11-21T10:00:02.000000Z no newline",
    ]


@pytest.mark.parametrize("size", [1, 1000])
def test_since_a_moment_within_a_second(size: int) -> None:
    assert taken(LogRequest(since=HALF_PAST), size) == b"\na\rb\0\xff\nno newline"
    assert taken(LogRequest(since=HALF_PAST + 0.1), size) == b"a\rb\0\xff\nno newline"


def test_a_log_that_is_no_more_is_an_error_and_no_output() -> None:
    with pytest.raises(EngineError, match="no more"):
        Lines(LogRequest()).take(b"unable to retrieve container logs for containerd://x")
