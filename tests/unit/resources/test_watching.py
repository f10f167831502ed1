"""A watch over events that cannot be read: they are set aside, and nobody waits for ever."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

from carrel_scheduler.kube.errors import KubeError
from carrel_scheduler.ledger.errors import LedgerUnavailable
from carrel_scheduler.ledger.resources import codec, kinds
from carrel_scheduler.ledger.resources.watching import ManyWatch
from carrel_scheduler.ledger.store import Change, ChangeType, Expired
from carrel_scheduler.quarantine import Quarantine
from carrel_schema import names
from carrel_schema.objects import Meta, Project, ProjectSpec

TIMEOUT_SECONDS = 30.0
[RESOURCE] = kinds.resources_of(Project)


def event(kind: str, name: str, version: int, **changed: Any) -> bytes:
    """A line of a watch of projects."""
    meta = Meta(name=name, uid=f"uid-{name}", created_at=1.0)
    body = codec.manifest(Project(meta=meta, spec=ProjectSpec()))
    metadata = {"uid": f"uid-{name}", "resourceVersion": str(version), "generation": 1}
    body["metadata"] |= metadata | changed.pop("metadata", {})
    return msgspec.json.encode({"type": kind, "object": body | changed}) + b"\n"


class Server:
    """Says some lines of a watch, then fails or nothing more."""

    def __init__(self, *lines: bytes, end: Exception | None = None) -> None:
        self.lines, self.end = lines, end
        self.asked: list[str] = []

    async def watch(self, _: Any, version: str, **__: Any) -> AsyncIterator[bytes]:
        self.asked.append(version)
        for line in self.lines if len(self.asked) == 1 else ():
            yield line
        if self.end is not None:
            raise self.end
        if len(self.asked) > 1:
            await asyncio.Event().wait()

    async def raw(self, *_: Any) -> bytes:
        return b'{"metadata": {"resourceVersion": "1"}, "items": []}'


async def nothing(_: float) -> None:
    """Waits for nothing."""


def watching(server: Server, quarantine: Quarantine) -> ManyWatch[Project]:
    client: Any = server
    return ManyWatch(
        client,
        Project,
        [RESOURCE],
        1,
        statuses=True,
        chance=lambda: 0.0,
        pause=nothing,
        quarantine=quarantine,
    )


async def take(watch: ManyWatch[Project], count: int) -> Sequence[Change[Project]]:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return [await anext(watch) for _ in range(count)]


BAD = {
    "no JSON": b"nonsense\n",
    "no event": b'{"type": "ADDED"}\n',
    "no UTF-8": b'{"type": "\xff"}\n',
    "no object": b'{"type": "ADDED", "object": 5}\n',
    "no version": event("ADDED", "bad", 3, metadata={"resourceVersion": "x"}),
    "a wrong specification": event("ADDED", "bad", 3, spec={"quota": "much"}),
    "a wrong status": event("ADDED", "bad", 3, status=[1]),
    "a wrong annotation": event("ADDED", "bad", 3, metadata={"annotations": {names.LABELS: "["}}),
    "no time": event("ADDED", "bad", 3, metadata={"annotations": {names.CREATED_AT: "soon"}}),
    "no finite time": event("ADDED", "bad", 3, metadata={"annotations": {names.CREATED_AT: "nan"}}),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=list(BAD))
async def test_an_event_that_cannot_be_read_is_set_aside(bad: bytes) -> None:
    quarantine = Quarantine(lambda: 0.0)
    server = Server(event("ADDED", "one", 2), bad, event("ADDED", "two", 4))
    watch = watching(server, quarantine)
    changes = await take(watch, 2)
    assert [change.object.meta.name for change in changes] == ["one", "two"]
    assert [item.source for item in quarantine.items] == ["project"]
    await watch.aclose()


async def test_what_can_be_read_again_is_told_and_no_longer_set_aside() -> None:
    quarantine = Quarantine(lambda: 0.0)
    server = Server(BAD["a wrong specification"], event("MODIFIED", "bad", 4))
    watch = watching(server, quarantine)
    [change] = await take(watch, 1)
    assert change.object.meta.name == "bad"
    assert quarantine.items == ()
    await watch.aclose()


async def test_the_watch_goes_on_behind_what_cannot_be_read() -> None:
    server = Server(event("ADDED", "one", 2), BAD["a wrong specification"])
    watch = watching(server, Quarantine(lambda: 0.0))
    await take(watch, 1)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(server.asked) < 2:  # noqa: ASYNC110 - the fake sets no event
            await asyncio.sleep(0)
    assert server.asked[1] == "3"
    await watch.aclose()


async def test_the_end_of_what_cannot_be_read_is_found_by_listing() -> None:
    server = Server(event("DELETED", "bad", 3, spec={"quota": "much"}))
    watch = watching(server, Quarantine(lambda: 0.0))
    with pytest.raises(Expired):
        await take(watch, 1)


@pytest.mark.parametrize("end", [RuntimeError("unforeseen"), KubeError(403, "Forbidden", "no")])
async def test_whoever_waits_hears_why_a_watch_has_ended(end: Exception) -> None:
    watch = watching(Server(end=end), Quarantine(lambda: 0.0))
    with pytest.raises(LedgerUnavailable):
        await take(watch, 1)


async def test_changes_keep_their_kind() -> None:
    server = Server(event("ADDED", "one", 2), event("DELETED", "one", 3))
    watch = watching(server, Quarantine(lambda: 0.0))
    changes = await take(watch, 2)
    assert [change.type for change in changes] == [ChangeType.ADDED, ChangeType.DELETED]
    await watch.aclose()
