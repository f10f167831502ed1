"""What a slow subscriber is told, and what a listing changes."""

import random
from typing import Any

import pytest

from carrel_scheduler.kube.metadata import Metadata, PartialObject
from carrel_scheduler.kube.reflector import SYNCED, ChangeKind, Pending, Store, WatchChange

ADDED, MODIFIED, DELETED = ChangeKind.ADDED, ChangeKind.MODIFIED, ChangeKind.DELETED


def thing(uid: str, version: int = 1) -> PartialObject:
    return PartialObject(Metadata(name=uid, uid=uid, resource_version=str(version)))


def told(store: Store[Any], *listed: Any) -> list[tuple[ChangeKind, str]]:
    return [(change.kind, uid) for uid, change in store.replace(listed)]


def test_a_listing_tells_only_what_is_new() -> None:
    store = Store(PartialObject)
    assert told(store, thing("a"), thing("b")) == [(ADDED, "a"), (ADDED, "b")]
    assert told(store, thing("a"), thing("b")) == []
    assert told(store, thing("b", 2), thing("c")) == [(DELETED, "a"), (MODIFIED, "b"), (ADDED, "c")]
    assert set(store.objects) == {"b", "c"}


def test_another_object_of_the_same_name_is_another() -> None:
    store = Store(dict)
    first = {"metadata": {"name": "p", "uid": "1", "resourceVersion": "5"}}
    second = {"metadata": {"name": "p", "uid": "2", "resourceVersion": "6"}}
    store.replace([first])
    assert told(store, second) == [(DELETED, "1"), (ADDED, "2")]


def test_events_known_already_change_nothing() -> None:
    store = Store(PartialObject)
    assert store.put(thing("a", 3)) == ("a", WatchChange(ADDED, thing("a", 3)))
    assert store.put(thing("a", 3)) is None
    assert store.put(thing("a", 4)) == ("a", WatchChange(MODIFIED, thing("a", 4)))
    assert store.remove("a", thing("a", 5)) == ("a", WatchChange(DELETED, thing("a", 5)))
    assert store.remove("a") is None


def test_the_last_known_state_is_told_when_the_end_was_not_seen() -> None:
    store = Store(PartialObject)
    store.put(thing("a", 3))
    assert store.remove("a") == ("a", WatchChange(DELETED, thing("a", 3)))


def test_synced_is_about_no_object() -> None:
    with pytest.raises(ValueError, match="has no object"):
        _ = SYNCED.object


def test_what_nobody_saw_is_nothing() -> None:
    pending: Pending[PartialObject] = Pending()
    pending.put("a", WatchChange(ADDED, thing("a")))
    pending.put("a", WatchChange(DELETED, thing("a")))
    assert len(pending) == 0
    with pytest.raises(KeyError):
        pending.pop()


def test_an_object_comes_when_it_changed_last() -> None:
    pending: Pending[PartialObject] = Pending()
    pending.put("a", WatchChange(ADDED, thing("a")))
    pending.put("b", WatchChange(DELETED, thing("b")))
    pending.put("a", WatchChange(MODIFIED, thing("a", 2)))
    assert pending.pop() == WatchChange(DELETED, thing("b"))
    assert pending.pop() == WatchChange(ADDED, thing("a", 2))


def test_an_object_that_leaves_a_selection_and_returns_was_changed() -> None:
    pending: Pending[PartialObject] = Pending()
    pending.put("a", WatchChange(DELETED, thing("a")))
    pending.put("a", WatchChange(ADDED, thing("a", 2)))
    assert pending.pop() == WatchChange(MODIFIED, thing("a", 2))


@pytest.mark.parametrize("seed", range(20))
def test_whoever_takes_at_his_own_pace_sees_the_same_in_the_end(seed: int) -> None:
    chance = random.Random(seed)
    store, pending = Store(PartialObject), Pending[PartialObject]()
    seen: dict[str, str] = {}

    def take() -> None:
        change = pending.pop()
        metadata = change.object.metadata
        assert (change.kind is ADDED) == (metadata.uid not in seen)
        if change.kind is DELETED:
            del seen[metadata.uid]
        else:
            assert seen.get(metadata.uid) != metadata.resource_version
            seen[metadata.uid] = metadata.resource_version

    for version in range(300):
        uid = f"o{chance.randrange(5)}"
        happened = store.remove(uid) if chance.random() < 0.4 else store.put(thing(uid, version))
        if happened is not None:
            pending.put(*happened)
        while len(pending) and chance.random() < 0.3:
            take()
    while len(pending):
        take()
    assert seen == {uid: one.metadata.resource_version for uid, one in store.objects.items()}
