"""Requests and answers on the wire: framed anew, in order, bounded, and whole or visibly not."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from unit.proxy.wires import Pass, plain, settled

GET = b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
async def wire() -> AsyncIterator[Pass]:
    made = Pass()
    yield made
    await made.goes()


async def test_a_request_goes_out_and_its_answer_back_and_both_connections_stay(wire: Pass) -> None:
    await wire.says(GET)
    assert wire.lines[0].sent == GET
    await wire.target_says(OK)
    assert plain(wire.wire.sent) == OK
    await wire.says(GET)
    await wire.target_says(OK)
    assert (len(wire.lines), plain(wire.wire.sent)) == (1, OK + OK)


async def test_bodies_pass_as_they_come_both_ways(wire: Pass) -> None:
    await wire.says(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc")
    head = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n"
    assert wire.lines[0].sent == head + b"abc"
    await wire.target_says(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
    begun = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
    assert plain(wire.wire.sent) == begun
    await wire.says(b"def")
    assert wire.lines[0].sent == head + b"abcdef"
    await wire.target_says(b"2\r\nyz\r\n0\r\n\r\n")
    assert plain(wire.wire.sent) == begun + b"2\r\nyz\r\n0\r\n\r\n"
    assert len(wire.idle) == 1


async def test_chunks_are_framed_anew_and_what_follows_them_is_left_out(wire: Pass) -> None:
    await wire.says(CHUNKED + b"3;x=1\r\nabc\r\n", b"0\r\nX-Forwarded-User: root\r\n\r\n")
    assert wire.lines[0].sent == CHUNKED + b"3\r\nabc\r\n0\r\n\r\n"


async def test_what_named_headers_would_take_away_frames_the_body_still(wire: Pass) -> None:
    await wire.says(
        b"POST /a HTTP/1.1\r\nHost: h\r\nConnection: content-length, x\r\nX: 1\r\n"
        b"Content-Length: 2\r\n\r\nab"
    )
    assert wire.lines[0].sent == b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab"


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: chunked", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3, 3", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +3", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked", 400),
        (b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n Content-Length: 3", 400),
        (b"GET / HTTP/1.1\nHost: h", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\0b", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nHost: other", 400),
        (b"GET / HTTP/1.1\r\nX: 1", 400),
        (b"GET / HTTP/2.0\r\nHost: h", 505),
        (b"CONNECT elsewhere:22 HTTP/1.1\r\nHost: h", 405),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 70_000, 431),
        (b"GET / HTTP/1.1\r\nHost: h" + b"\r\nX: 1" * 300, 431),
    ],
)
async def test_what_may_be_read_in_two_ways_is_refused_and_the_connection_ends(
    wire: Pass, head: bytes, status: int
) -> None:
    await wire.says(head + b"\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n")
    assert wire.wire.sent.startswith(b"HTTP/1.1 %d " % status)
    assert b"Connection: close" in wire.wire.sent
    assert wire.wire.ended
    assert wire.lines == []
    await wire.says(GET)
    assert wire.lines == []


async def test_a_head_without_an_end_is_not_kept_for_ever(wire: Pass) -> None:
    await wire.says(b"GET / HTTP/1.1\r\nHost: h\r\nX: ", *[b"a" * 30_000] * 5)
    assert wire.wire.sent.startswith(b"HTTP/1.1 431 ")


async def test_a_trailer_without_an_end_is_not_kept_for_ever(wire: Pass) -> None:
    await wire.says(CHUNKED + b"3\r\nabc\r\n0\r\nX: ", *[b"a" * 30_000] * 5)
    assert wire.wire.sent.startswith(b"HTTP/1.1 431 ")
    assert wire.lines[0].broken


async def test_further_requests_wait_for_their_turn_and_no_more_is_read(wire: Pass) -> None:
    await wire.says(GET + GET.replace(b"/a", b"/b") + GET.replace(b"/a", b"/c"))
    assert wire.lines[0].sent == GET
    await wire.says(b"GET /d HTTP/1.1\r\n")
    assert not wire.wire.reading()
    await wire.target_says(OK)
    assert wire.lines[0].sent == GET + GET.replace(b"/a", b"/b")
    assert not wire.wire.reading()
    await wire.target_says(OK)
    assert wire.wire.reading()
    await wire.target_says(OK)
    assert plain(wire.wire.sent) == OK * 3


async def test_a_slow_target_stops_the_caller_and_a_slow_caller_the_target(wire: Pass) -> None:
    await wire.says(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc")
    line = wire.lines[0].protocol
    assert line is not None
    line.pause_writing()
    assert not wire.wire.reading()
    line.resume_writing()
    assert wire.wire.reading()
    wire.caller.pause_writing()
    assert not wire.lines[0].reading()
    wire.caller.resume_writing()
    assert wire.lines[0].reading()


async def test_a_line_is_heard_again_once_its_answer_is_whole(wire: Pass) -> None:
    await wire.says(GET)
    wire.caller.pause_writing()
    await wire.target_says(OK)
    assert len(wire.idle) == 1
    assert wire.lines[0].reading()
    wire.caller.resume_writing()


async def test_nothing_new_begins_while_the_caller_takes_nothing(wire: Pass) -> None:
    await wire.says(GET + GET)
    wire.caller.pause_writing()
    await wire.target_says(OK)
    assert wire.lines[0].sent == GET
    wire.caller.resume_writing()
    await settled()
    assert wire.lines[0].sent == GET + GET


async def test_little_of_a_body_is_kept_while_no_target_takes_it() -> None:
    held: list[object] = []

    async def serve(exchange: object) -> None:
        held.append(exchange)
        await asyncio.get_running_loop().create_future()

    wire = Pass(serve)
    await wire.says(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 900000\r\n\r\n", b"x" * 70_000)
    assert (len(held), wire.wire.reading()) == (1, False)
    await wire.goes()


async def test_who_expects_it_is_told_to_continue_once_a_target_listens(wire: Pass) -> None:
    head = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n"
    await wire.says(head + b"Expect: 100-continue\r\n\r\n")
    assert wire.wire.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert wire.lines[0].sent == head + b"\r\n"
    await wire.says(b"ab")
    await wire.target_says(b"HTTP/1.1 100 Continue\r\n\r\n", OK)
    assert plain(wire.wire.sent) == b"HTTP/1.1 100 Continue\r\n\r\n" + OK


async def test_a_body_beyond_its_bound_is_refused_and_read_for_a_while(wire: Pass) -> None:
    wire.most = 4
    await wire.says(CHUNKED + b"3\r\nabc\r\n")
    await wire.says(b"3\r\nabc\r\n")
    assert wire.wire.sent.startswith(b"HTTP/1.1 502 ")
    assert wire.lines[0].broken
    assert (wire.wire.closed, wire.wire.reading()) == (False, True)


async def test_an_answer_before_the_end_of_a_body_keeps_the_connection_until_it_came(
    wire: Pass,
) -> None:
    await wire.says(b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\nabc")
    await wire.target_says(OK)
    assert plain(wire.wire.sent) == OK
    assert wire.lines[0].broken
    await wire.says(b"def" + GET)
    await wire.target_says(OK)
    assert plain(wire.wire.sent) == OK + OK


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 140_000,
        b"nonsense\r\n\r\n",
    ],
)
async def test_an_answer_that_is_none_is_not_passed_on(wire: Pass, answer: bytes) -> None:
    await wire.says(GET)
    await wire.target_says(answer)
    assert wire.wire.sent.startswith(b"HTTP/1.1 502 ")
    assert (wire.lines[0].broken, len(wire.failures)) == (True, 1)


async def test_an_answer_that_breaks_off_does_not_look_whole(wire: Pass) -> None:
    await wire.says(GET)
    await wire.target_says(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nok")
    await wire.target_hangs_up()
    assert wire.wire.broken


async def test_an_answer_without_a_length_ends_with_its_connection(wire: Pass) -> None:
    await wire.says(GET)
    await wire.target_says(b"HTTP/1.0 200 OK\r\n\r\nok")
    await wire.target_hangs_up()
    assert plain(wire.wire.sent).endswith(b"chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
    assert not wire.wire.closed
    await wire.says(GET)
    await wire.target_says(b"HTTP/1.0 200 OK\r\n\r\nok")
    await wire.target_hangs_up(ConnectionResetError())
    assert wire.wire.broken


async def test_an_old_caller_gets_no_chunks(wire: Pass) -> None:
    await wire.says(b"GET /a HTTP/1.0\r\nHost: h\r\n\r\n")
    assert wire.lines[0].sent == GET
    await wire.target_says(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    )
    assert plain(wire.wire.sent) == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok"
    assert (wire.wire.closed, wire.wire.broken) == (True, False)


async def test_an_answer_to_head_has_no_body_and_leaves_the_line_usable(wire: Pass) -> None:
    await wire.says(GET.replace(b"GET", b"HEAD"))
    await wire.target_says(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
    assert plain(wire.wire.sent) == b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
    await wire.says(GET)
    await wire.target_says(OK)
    assert len(wire.lines) == 1
    assert plain(wire.wire.sent).endswith(OK)


async def test_a_target_that_says_more_than_it_was_asked_is_not_asked_again(wire: Pass) -> None:
    await wire.says(GET)
    await wire.target_says(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad")
    assert plain(wire.wire.sent) == OK
    await wire.says(GET)
    await wire.target_says(OK)
    assert (len(wire.lines), plain(wire.wire.sent)) == (2, OK + OK)


async def test_who_goes_away_is_not_worked_for_any_longer(wire: Pass) -> None:
    await wire.says(GET)
    wire.wire.abort()
    await settled()
    assert wire.lines[0].broken


async def test_a_websocket_takes_its_connection_over(wire: Pass) -> None:
    head = b"GET /ws HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    await wire.says(head + b"frame")
    assert [one.got for one in wire.taken] == [head + b"frame"]
    wire.taken.clear()


async def test_another_protocol_is_not_spoken_and_its_request_passed_on(wire: Pass) -> None:
    more = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"
    head = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n"
    await wire.says(head + more + b"\r\nabc" + GET)
    assert wire.lines[0].sent == head + b"\r\nabc"
    await wire.target_says(OK)
    assert wire.lines[0].sent.endswith(GET)
