"""Server-sent events: the parser piece by piece, the stream over breaks."""

from contextlib import aclosing

import pytest

from carrel.client import AsyncClient, Client
from carrel.client.stream import Message, Parser, decode
from carrel.errors import ApiError, UnexpectedAnswer, Unreachable
from carrel.testing import FakeScheduler
from unit.client.conftest import Waits

WIRE = (
    b": a comment\n\nevent: workload\nid: 7\ndata: {\ndata: }\n\n"
    b"data: plain\r\n\r\nid: 9\n\nevent: lost\n\ndata:no space\n\n"
)
MESSAGES = [
    Message("workload", "{\n}", "7"),
    Message("message", "plain", "7"),
    Message("message", "no space", "9"),
]


@pytest.mark.parametrize("size", [1, 2, 7, len(WIRE)])
def test_the_parser_takes_pieces_cut_anywhere(size: int) -> None:
    parser = Parser()
    found = [
        message
        for start in range(0, len(WIRE), size)
        for message in parser.feed(WIRE[start : start + size])
    ]
    assert found == MESSAGES


def test_letters_cut_in_two_stay_whole() -> None:
    parser = Parser()
    first, second = "data: ü\n\n".encode()[:7], "data: ü\n\n".encode()[7:]
    assert parser.feed(first) == []
    assert parser.feed(second)[0].data == "ü"


def test_events_are_typed_in_both_forms() -> None:
    flat = decode(Message("report", '{"name":"x","project":"v","report":{"step":3}}', "1"))
    around = decode(
        Message("report", '{"workload":{"name":"x","project":"v"},"report":{"step":3}}', "1")
    )
    assert flat == around
    assert flat.report is not None
    assert flat.report.step == 3
    with pytest.raises(UnexpectedAnswer):
        decode(Message("workload", "{}", "1"))


def test_a_stream_begins_with_what_is_and_goes_on_with_what_comes(
    client: Client, fake: FakeScheduler
) -> None:
    fake.submit("vision", "x")
    fake.submit("vision", "other")
    fake.submit("speech", "theirs", user="bob")
    events = client.events("vision", "x")
    assert next(events).workload.status.phase == "pending"
    fake.run("vision", "other")
    fake.run("speech", "theirs")
    fake.run("vision", "x")
    assert next(events).workload.status.phase == "running"
    fake.report("vision", "x", step=5)
    event = next(events)
    assert event.type == "report"
    assert event.report is not None
    assert event.report.step == 5
    client.delete_workload("vision", "x")
    assert next(events).type == "deleted"
    events.close()


def test_after_a_break_nothing_is_missed_or_repeated(
    client: Client, fake: FakeScheduler, waits: Waits
) -> None:
    fake.submit("vision", "x")
    events = client.events("vision")
    seen = [next(events)]
    fake.fail_next(503, 502, 0)
    fake.end_streams()
    fake.run("vision", "x")
    fake.finish("vision", "x")
    seen += [next(events), next(events)]
    assert [event.workload.status.phase for event in seen] == ["pending", "running", "succeeded"]
    assert waits.seconds == sorted(waits.seconds)
    assert len(waits.seconds) >= 3
    events.close()


def test_a_refusal_ends_the_stream(client: Client) -> None:
    with pytest.raises(ApiError, match="no project"):
        next(client.events("speech", "theirs"))


def test_nobody_there_ends_after_some_tries(waits: Waits, tmp_path: object) -> None:
    url = f"http+unix://{str(tmp_path).replace('/', '%2F')}%2Fnone/services/carrel"
    client = Client(url, "t", pauses=waits.pauses())
    with client, pytest.raises(Unreachable, match="no such file"):
        next(client.events())
    assert len(waits.seconds) == 3


async def test_the_stream_is_asynchronous_too(fake: FakeScheduler) -> None:
    fake.submit("vision", "x")
    client = AsyncClient(fake.url, fake.token("ada"))
    async with client, aclosing(client.events(kind="training")) as events:
        async for event in events:
            assert event.workload.name == "x"
            break
