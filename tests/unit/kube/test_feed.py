"""Feeds over a scripted server: nothing missed and nothing twice, whatever is cut."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable

import pytest

from carrel_scheduler.kube.errors import Forbidden, TooManyRequests, Unavailable
from carrel_scheduler.kube.feed import Feed, FeedEnded, FeedSubscription
from carrel_scheduler.kube.metadata import PartialObject
from carrel_scheduler.kube.reflector import SYNCED, ChangeKind, ReflectorTiming, WatchChange
from carrel_scheduler.kube.resources import PODS
from unit.kube.scripted import ScriptedServer, thing

ADDED, MODIFIED, DELETED = ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.DELETED
LOST = Unavailable(0, "Unreachable", "cut")


class Pauses(list[float]):
    """Remembers pauses instead of making them."""

    async def __call__(self, seconds: float) -> None:
        self.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def feed(server: ScriptedServer, pauses: Pauses) -> AsyncIterator[Feed[PartialObject]]:
    made = Feed(server, PODS, PartialObject, chance=lambda: 0.5, pause=pauses, now=lambda: 0.0)
    yield made
    await made.close()


async def take(subscription: FeedSubscription[PartialObject], count: int) -> list[tuple[str, str]]:
    """The next changes: what happened, and to which version of what."""
    found = [await asyncio.wait_for(anext(subscription), 30) for _ in range(count)]
    return [(one.kind.value, f"{one.object.metadata.name}@{version(one)}") for one in found]


def trouble(feed: Feed[PartialObject]) -> type[Exception] | None:
    return None if feed.trouble is None else type(feed.trouble)


def version(change: WatchChange[PartialObject]) -> str:
    return change.object.metadata.resource_version


async def begun(feed: Feed[PartialObject]) -> FeedSubscription[PartialObject]:
    """A subscription that has heard what was there, and whose watch runs."""
    subscription = feed.subscribe()
    async for change in subscription:
        if change is SYNCED:
            break
    return subscription


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - a turn of the loop, not a time
            await asyncio.sleep(0)


async def watching(server: ScriptedServer, times: int) -> None:
    """Wait until so many watches were begun."""
    await until(lambda: len(server.watches) >= times)


async def test_first_what_is_there_then_synced_then_what_happens(
    server: ScriptedServer, feed: Feed[PartialObject]
) -> None:
    server.put("a")
    subscription = feed.subscribe()
    assert await anext(subscription) == WatchChange(ADDED, thing("a", 2))
    assert await anext(subscription) is SYNCED
    server.put("a")
    assert await take(subscription, 1) == [("MODIFIED", "a@3")]
    server.delete("a")
    assert await take(subscription, 1) == [("DELETED", "a@4")]


async def test_each_subscriber_hears_everything(
    server: ScriptedServer, feed: Feed[PartialObject]
) -> None:
    server.put("a")
    early = await begun(feed)
    server.put("b")
    assert await take(early, 1) == [("ADDED", "b@3")]
    late = feed.subscribe()
    assert await take(late, 2) == [("ADDED", "a@2"), ("ADDED", "b@3")]
    assert await anext(late) is SYNCED
    early.close()
    server.put("c")
    assert await take(late, 1) == [("ADDED", "c@4")]
    assert [change async for change in early] == []


async def test_a_batch_is_all_that_is_there(
    server: ScriptedServer, feed: Feed[PartialObject]
) -> None:
    server.put("a")
    await feed.synced()
    subscription = feed.subscribe()
    assert await subscription.batch() == [WatchChange(ADDED, thing("a", 2)), SYNCED]
    server.put("b")
    assert await subscription.batch() == [WatchChange(ADDED, thing("b", 3))]
    await feed.close()
    assert await subscription.batch() == []


async def test_a_cut_within_an_event_goes_on_behind_the_last_whole_one(
    server: ScriptedServer, feed: Feed[PartialObject]
) -> None:
    subscription = await begun(feed)
    server.put("a")
    assert await take(subscription, 1) == [("ADDED", "a@2")]
    server.cut(b'{"type":"ADDED","object":{"metadata":{"name":"b"', LOST)
    server.put("b")
    assert await take(subscription, 1) == [("ADDED", "b@3")]
    assert server.watches == ["1", "2"]
    assert server.lists == 1
    assert feed.trouble is None


async def test_bookmarks_move_the_version_to_go_on_from(
    server: ScriptedServer, feed: Feed[PartialObject]
) -> None:
    await begun(feed)
    await watching(server, 1)
    server.version = 50
    server.bookmark()
    server.compact()
    server.cut()
    await watching(server, 2)
    assert (server.watches, server.lists) == (["1", "50"], 1)


@pytest.mark.parametrize("how", ["status", "event"])
async def test_a_forgotten_version_is_listed_anew_as_a_difference(
    how: str, server: ScriptedServer, feed: Feed[PartialObject]
) -> None:
    for name in ("same", "changed", "gone"):
        server.put(name)
    subscription = await begun(feed)
    await watching(server, 1)
    if how == "event":
        server.say_error()
    server.cut()
    server.delete("gone")
    server.put("changed")
    server.put("new")
    server.compact()
    assert await take(subscription, 3) == [
        ("DELETED", "gone@4"),
        ("MODIFIED", "changed@6"),
        ("ADDED", "new@7"),
    ]
    assert server.lists == 2


async def test_whatever_breaks_a_watch_from_within_may_have_hidden_something(
    server: ScriptedServer, feed: Feed[PartialObject]
) -> None:
    subscription = await begun(feed)
    await watching(server, 1)
    server.say_error(500)
    server.cut()
    await watching(server, 2)
    server.put("a")
    assert await take(subscription, 1) == [("ADDED", "a@2")]
    assert server.lists == 2


async def test_a_feed_that_is_over(server: ScriptedServer, feed: Feed[PartialObject]) -> None:
    server.refusals = [LOST] * 1000
    subscription = feed.subscribe()
    await feed.close()
    with pytest.raises(FeedEnded):
        await feed.synced()
    assert await subscription.batch() == []
    assert await feed.subscribe().batch() == []


async def test_a_silent_watch_is_taken_for_dead(server: ScriptedServer, pauses: Pauses) -> None:
    timing = ReflectorTiming(silent=0.01)
    async with Feed(server, PODS, PartialObject, timing=timing, pause=pauses) as feed:
        await begun(feed)
        await asyncio.wait_for(watching(server, 3), 30)
        assert isinstance(feed.trouble, Unavailable)
        assert "silent for 0.01 s" in str(feed.trouble)


async def test_pauses_grow_until_it_works_again(
    server: ScriptedServer, feed: Feed[PartialObject], pauses: Pauses
) -> None:
    server.refusals = [Forbidden(403, "Forbidden", "no"), *[LOST] * 3]
    busy = TooManyRequests(429, "TooManyRequests", "later")
    busy.retry_after = 9.0
    server.refusals.append(busy)
    subscription = feed.subscribe()
    assert await asyncio.wait_for(anext(subscription), 30) is SYNCED
    assert pauses == pytest.approx([0.0375, 0.075, 0.15, 0.3, 9.0])
    assert trouble(feed) is TooManyRequests
    server.put("a")
    await take(subscription, 1)
    assert trouble(feed) is None
    server.cut(error=LOST)
    await watching(server, 2)
    assert pauses[-1] == pytest.approx(0.0375)


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered(
    server: ScriptedServer, feed: Feed[PartialObject], pauses: Pauses
) -> None:
    await begun(feed)
    for times in range(1, 5):
        await watching(server, times)
        await asyncio.sleep(0)
        server.cut()
    await watching(server, 5)
    assert pauses == sorted(pauses)
    assert len(pauses) == 4


async def test_an_error_of_ours_reaches_the_subscribers(server: ScriptedServer) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    server.list = broken  # type: ignore[method-assign, assignment]
    async with Feed(server, PODS, PartialObject) as feed:
        with pytest.raises(RuntimeError, match="a bug"):
            await anext(feed.subscribe())


def something_happens(server: ScriptedServer, chance: random.Random) -> None:
    name = f"o{chance.randrange(6)}"
    if name in server.objects and chance.random() < 0.3:
        server.delete(name)
    else:
        server.put(name)


def something_breaks(server: ScriptedServer, what: float) -> None:
    if what < 0.03:
        server.cut(b'{"type":"ADDED","obj', LOST)
    elif what < 0.05:
        server.cut(b'{"type":"ADDED","obj')
    elif what < 0.08:
        server.compact()
        server.cut(error=LOST)
    elif what < 0.1:
        server.say_error()
    elif what < 0.12:
        server.bookmark()


@pytest.mark.parametrize("seed", range(10))
async def test_random_cuts_neither_lose_nor_repeat(
    seed: int, server: ScriptedServer, feed: Feed[PartialObject]
) -> None:
    chance = random.Random(seed)
    subscription = feed.subscribe()
    seen: dict[str, str] = {}

    async def hear() -> None:
        async for change in subscription:
            if change is SYNCED:
                continue
            name = change.object.metadata.name
            assert (change.kind is ADDED) == (name not in seen)
            if change.kind is DELETED:
                del seen[name]
            else:
                assert int(version(change)) > int(seen.get(name, "0"))
                seen[name] = version(change)

    hearing = asyncio.create_task(hear())
    for _ in range(200):
        something_happens(server, chance)
        something_breaks(server, chance.random())
        for _ in range(chance.randrange(4)):
            await asyncio.sleep(0)
    server.put("last")
    await until(lambda: "last" in seen)
    await feed.close()
    await hearing
    assert seen == {name: found.metadata.resource_version for name, found in server.objects.items()}
