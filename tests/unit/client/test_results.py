"""Results as bytes: what goes in comes out, and what cannot is said."""

import threading

import pytest

from carrel import results
from carrel.results import NoResult, RemoteError


class Odd(Exception):  # noqa: N818 - one of many in the world
    """Cannot be made again from its arguments."""

    def __init__(self, code: int, *, text: str) -> None:
        super().__init__(f"{text} ({code})")


def failed(error: Exception) -> bytes:
    def fails() -> None:
        raise error

    try:
        fails()
    except (ValueError, Odd) as raised:
        return results.encode_error(raised)
    return b""


def test_values() -> None:
    for value in (None, 1, {"a": [1, 2]}, b"\n\n", "x" * 10_000):
        assert results.decode(results.encode_value(value)) == value
    assert results.decode(results.encode_value(lambda x: x + 1))(1) == 2


def test_exceptions_come_back_with_their_traceback() -> None:
    with pytest.raises(ValueError, match="bad epoch") as raised:
        results.decode(failed(ValueError("bad epoch")))
    assert "in failed" in str(raised.value.__cause__)


def test_exceptions_that_cannot_be_made_here_keep_their_words() -> None:
    with pytest.raises(RemoteError, match=r"Odd: lost \(7\)") as raised:
        results.decode(failed(Odd(7, text="lost")))
    assert (raised.value.type_name, "in failed" in raised.value.traceback) == ("Odd", True)


def test_what_could_not_be_sent_says_why() -> None:
    with pytest.raises(NoResult, match="a lock, stayed there: it cannot be packed"):
        results.decode(results.encode_value(threading.Lock()))
    with pytest.raises(NoResult, match=r"a bytes, stayed there: it takes 0\.0 MiB, more than"):
        results.decode(results.encode_value(bytes(range(256)), most_bytes=10))
    assert results.decode(results.encode_value(1, most_bytes=100)) == 1


@pytest.mark.parametrize("content", [b"", b"[]\n", b'{"what": 1}\n', b"\xff\n"])
def test_what_is_no_result_is_said_to_be_none(content: bytes) -> None:
    with pytest.raises(NoResult, match="understands"):
        results.decode(content)


def test_a_value_of_an_unknown_class_is_said_to_be_one() -> None:
    content = results.encode_value(1)[:-4]
    with pytest.raises(NoResult, match="cannot be unpacked here"):
        results.decode(content)
