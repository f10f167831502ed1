"""Bytes of a watch into events."""

import logging
from typing import Any

import msgspec
import pytest

from carrel_scheduler.kube.decoding import EventReader, LineSplitter, Seen
from carrel_scheduler.kube.errors import Gone, Undecodable
from carrel_scheduler.kube.metadata import ObjectVersion


class Meta(msgspec.Struct, rename="camel"):
    uid: str
    resource_version: str


class Thing(msgspec.Struct):
    metadata: Meta
    size: int


def line(kind: str, obj: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj})


def thing(size: Any = 1) -> dict[str, Any]:
    metadata = {"uid": "u", "resourceVersion": "7", "name": "n", "namespace": "s"}
    return {"metadata": metadata, "size": size, "unknown": [{}]}


@pytest.mark.parametrize("step", [1, 2, 3, 5, 100])
def test_lines_come_whole_however_the_bytes_are_cut(step: int) -> None:
    text = b'{"a":1}\n{"bb":"\xc3\xa4"}\n\n{"c":3}\n{"unfinished"'
    lines, found = LineSplitter(), []
    for at in range(0, len(text), step):
        found += lines.feed(text[at : at + step])
    assert found == [b'{"a":1}', b'{"bb":"\xc3\xa4"}', b'{"c":3}']


@pytest.mark.parametrize(
    ("kind", "seen"), [("ADDED", Seen.THERE), ("MODIFIED", Seen.THERE), ("DELETED", Seen.GONE)]
)
def test_events_are_of_the_type_asked_for(kind: str, seen: Seen) -> None:
    event = EventReader(Thing).read(line(kind, thing()))
    assert (event.seen, event.identity) == (seen, ObjectVersion("u", "7"))
    assert event.found == Thing(Meta("u", "7"), 1)
    assert EventReader(dict).read(line(kind, thing())).found == thing()


def test_bookmarks_move_the_version_only() -> None:
    bookmark = line("BOOKMARK", {"kind": "Thing", "metadata": {"resourceVersion": "9"}})
    event = EventReader(Thing).read(bookmark)
    assert (event.seen, event.identity.version, event.found) == (Seen.NOTHING, "9", None)


def test_errors_are_raised() -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
    with pytest.raises(Gone, match="too old"):
        EventReader(Thing).read(line("ERROR", gone))


def test_an_object_of_another_shape_is_gone_and_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        event = EventReader(Thing).read(line("MODIFIED", thing(size="secret")))
    assert (event.seen, event.identity, event.found) == (Seen.GONE, ObjectVersion("u", "7"), None)
    assert "s/n" in caplog.text
    assert "$.size" in caplog.text
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    "broken", [b"<html>", b'{"type":"ADDED","object":3}', b'{"type":1}', b'{"type":"\xff"}']
)
def test_what_is_no_event_is_refused(broken: bytes) -> None:
    with pytest.raises(Undecodable):
        EventReader(Thing).read(broken)
