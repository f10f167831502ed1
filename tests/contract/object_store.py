"""The contract of ``ObjectStore``; inherit ``ObjectStoreContract`` and give it the fixtures.

``stores`` opens the same store again and again (``await stores.open()``), also several at once, and
closes what is left open; ``store`` is one of them.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

import pytest

from carrel_scheduler.ledger.objects import (
    Meta,
    Project,
    ProjectSpec,
    Quota,
    ReasonInfo,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from carrel_scheduler.ledger.store import (
    AlreadyExists,
    Change,
    ChangeType,
    Conflict,
    Expired,
    NotFound,
    ObjectStore,
)

PATIENCE = 20.0


class ClosableStore(ObjectStore, Protocol):
    """A store that can be closed."""

    async def close(self) -> None:
        """Finish and close."""
        ...


class Stores(Protocol):
    """Opens the store under test."""

    async def open(self, *, keep_changes: int = 50_000) -> ClosableStore:
        """Another opening of the same data."""
        ...


def workload(name: str = "train-1", project: str = "vision", **spec: Any) -> Workload:
    """A workload as the API would create it."""
    labels = spec.pop("labels", {})
    fields = {"user": "ada", "command": ["python", "train.py"], "files": {"train.py": "π = 3"}}
    return Workload(
        meta=Meta(name=name, project=project, created_by="ada", labels=labels),
        spec=WorkloadSpec(**{**fields, **spec}),
    )


def project(name: str = "vision") -> Project:
    """A project as an admin would create it."""
    return Project(meta=Meta(name=name), spec=ProjectSpec(quota=Quota(gpu_milli=2000)))


async def take(changes: AsyncIterator[Change[Any]], count: int) -> list[Change[Any]]:
    """So many changes, or a failure after a while."""
    async with asyncio.timeout(PATIENCE):
        return [await anext(changes) for _ in range(count)]


def story(changes: list[Change[Any]]) -> list[tuple[str, str]]:
    """Names and types, for comparison."""
    return [(change.object.meta.name, change.type.value) for change in changes]


class ReadingAndWriting:
    """Create, get, update, delete."""

    async def test_create_fills_in_identity_and_keeps_the_rest(self, store: ObjectStore) -> None:
        given = workload(labels={"team": "a"}, priority=70, preemptible=False)
        made = await store.create(given)
        assert made.meta.uid
        assert made.meta.generation == 1
        assert made.meta.resource_version > 0
        assert made.meta.created_at > 0
        assert made.meta.created_by == "ada"
        assert made.meta.labels == {"team": "a"}
        assert made.spec == given.spec
        assert made.status == WorkloadStatus()
        assert await store.get(Workload, "train-1", "vision") == made
        assert await store.get_by_uid(Workload, made.meta.uid) == made

    async def test_given_uid_and_time_are_kept(self, store: ObjectStore) -> None:
        given = workload()
        given.meta.uid, given.meta.created_at = "my-uid", 12.5
        made = await store.create(given)
        assert (made.meta.uid, made.meta.created_at) == ("my-uid", 12.5)

    async def test_projects_are_stored_likewise(self, store: ObjectStore) -> None:
        made = await store.create(project())
        assert made.spec.quota.gpu_milli == 2000
        assert await store.get(Project, "vision") == made

    async def test_names_are_unique_by_kind_and_project(self, store: ObjectStore) -> None:
        first = await store.create(workload("same", "vision"))
        await store.create(workload("same", "speech"))
        await store.create(project("same"))
        with pytest.raises(AlreadyExists):
            await store.create(workload("same", "vision", user="bob"))
        assert await store.get(Workload, "same", "vision") == first

    async def test_uids_are_unique(self, store: ObjectStore) -> None:
        taken = await store.create(workload("one"))
        second = workload("two")
        second.meta.uid = taken.meta.uid
        with pytest.raises(AlreadyExists):
            await store.create(second)
        assert (await store.get_by_uid(Workload, taken.meta.uid)).meta.name == "one"

    async def test_what_is_not_there_is_not_found(self, store: ObjectStore) -> None:
        made = await store.create(workload())
        with pytest.raises(NotFound):
            await store.get(Workload, "train-1", "speech")
        with pytest.raises(NotFound):
            await store.get(Workload, "train-2", "vision")
        with pytest.raises(NotFound):
            await store.get_by_uid(Workload, "no-such-uid")
        with pytest.raises(NotFound):
            await store.get_by_uid(Project, made.meta.uid)
        with pytest.raises(NotFound):
            await store.delete(Workload, "train-2", "vision")

    async def test_versions_grow_over_all_objects(self, store: ObjectStore) -> None:
        one = await store.create(workload("one"))
        two = await store.create(project())
        three = await store.update(one)
        four = await store.update_status(three)
        five = await store.delete(Workload, "one", "vision")
        versions = [obj.meta.resource_version for obj in (one, two, three, four, five)]
        assert versions == sorted(set(versions))

    async def test_update_writes_spec_and_labels_only(self, store: ObjectStore) -> None:
        made = await store.create(workload(labels={"team": "a", "old": "x"}))
        wanted = await store.get(Workload, "train-1", "vision")
        wanted.spec.suspend = True
        wanted.meta.labels = {"team": "b"}
        wanted.status.phase = "failed"
        wanted.meta.created_by = "mallory"
        updated = await store.update(wanted)
        assert updated.spec.suspend is True
        assert updated.meta.labels == {"team": "b"}
        assert updated.status == made.status
        assert updated.meta.created_by == "ada"
        assert updated.meta.generation == 2
        assert updated.meta.resource_version > made.meta.resource_version
        assert await store.get(Workload, "train-1", "vision") == updated

    async def test_generation_counts_changes_of_the_spec_only(self, store: ObjectStore) -> None:
        made = await store.create(workload())
        made.meta.labels = {"team": "a"}
        labelled = await store.update(made)
        observed = await store.update_status(labelled)
        assert (labelled.meta.generation, observed.meta.generation) == (1, 1)

    async def test_update_status_writes_the_status_only(self, store: ObjectStore) -> None:
        made = await store.create(workload(labels={"team": "a"}))
        wanted = await store.get(Workload, "train-1", "vision")
        wanted.status.phase = "running"
        wanted.status.reason = ReasonInfo(token="Starting", data={"nodes": ["a", "b"]})
        wanted.spec.user = "mallory"
        wanted.meta.labels = {}
        updated = await store.update_status(wanted)
        assert updated.status.phase == "running"
        assert updated.status.reason == wanted.status.reason
        assert updated.spec == made.spec
        assert updated.meta.labels == {"team": "a"}
        assert await store.get(Workload, "train-1", "vision") == updated

    async def test_writes_of_an_old_version_conflict(self, store: ObjectStore) -> None:
        old = await store.create(workload())
        new = await store.update_status(old)
        with pytest.raises(Conflict):
            await store.update(old)
        with pytest.raises(Conflict):
            await store.update_status(old)
        with pytest.raises(Conflict):
            await store.delete(
                Workload, "train-1", "vision", resource_version=old.meta.resource_version
            )
        assert await store.get(Workload, "train-1", "vision") == new

    async def test_delete_returns_the_last_state(self, store: ObjectStore) -> None:
        made = await store.create(workload(labels={"team": "a"}))
        version = made.meta.resource_version
        gone = await store.delete(Workload, "train-1", "vision", resource_version=version)
        assert gone.meta.resource_version > version
        gone.meta.resource_version = version
        assert gone == made
        with pytest.raises(NotFound):
            await store.get(Workload, "train-1", "vision")
        with pytest.raises(NotFound):
            await store.update(made)
        with pytest.raises(NotFound):
            await store.update_status(made)

    async def test_a_new_object_of_an_old_name_is_another_one(self, store: ObjectStore) -> None:
        old = await store.create(workload())
        await store.delete(Workload, "train-1", "vision")
        new = await store.create(workload())
        assert new.meta.uid != old.meta.uid
        with pytest.raises(NotFound):
            await store.update(old)

    async def test_what_is_returned_is_the_callers_own(self, store: ObjectStore) -> None:
        given = workload(labels={"team": "a"})
        pending = asyncio.ensure_future(store.create(given))
        await asyncio.sleep(0)
        given.spec.environment["LATE"] = "1"
        made = await pending
        assert made.spec.environment == {}
        made.spec.environment["MINE"] = "1"
        made.meta.labels["team"] = "b"
        again = await store.get(Workload, "train-1", "vision")
        assert again.spec.environment == {}
        assert again.meta.labels == {"team": "a"}

    async def test_concurrent_writers_lose_nothing(self, store: ObjectStore) -> None:
        await store.create(workload(backoff_limit=0))

        async def increment() -> int:
            conflicts = 0
            while True:
                obj = await store.get(Workload, "train-1", "vision")
                obj.spec.backoff_limit += 1
                try:
                    await store.update(obj)
                except Conflict:
                    conflicts += 1
                else:
                    return conflicts

        conflicts = await asyncio.gather(*(increment() for _ in range(12)))
        obj = await store.get(Workload, "train-1", "vision")
        assert obj.spec.backoff_limit == 12
        assert obj.meta.generation == 13
        assert sum(conflicts) > 0

    async def test_what_returned_is_there_after_reopening(self, stores: Stores) -> None:
        first = await stores.open()
        made = await first.create(workload())
        made.status.phase = "running"
        running = await first.update_status(made)
        await first.close()
        second = await stores.open()
        assert await second.get(Workload, "train-1", "vision") == running
        later = await second.create(workload("train-2"))
        assert later.meta.resource_version > running.meta.resource_version


class Listing:
    """Order, pages, filters."""

    async def test_lists_in_order_of_creation(self, store: ObjectStore) -> None:
        for name in ("c", "a", "b"):
            await store.create(workload(name))
        await store.update(await store.get(Workload, "c", "vision"))
        await store.create(project())
        page = await store.list(Workload)
        assert [obj.meta.name for obj in page.items] == ["c", "a", "b"]
        assert page.next == ""
        assert page.items[1] == await store.get(Workload, "a", "vision")

    async def test_pages_continue_without_gap_or_repetition(self, store: ObjectStore) -> None:
        names = [f"train-{number}" for number in range(7)]
        for name in names:
            await store.create(workload(name))
        first = await store.list(Workload, limit=3)
        await store.delete(Workload, "train-2", "vision")
        await store.delete(Workload, "train-4", "vision")
        await store.create(workload("late"))
        second = await store.list(Workload, limit=3, after=first.next)
        third = await store.list(Workload, limit=3, after=second.next)
        seen = [[obj.meta.name for obj in page.items] for page in (first, second, third)]
        assert seen == [names[:3], ["train-3", "train-5", "train-6"], ["late"]]
        assert third.next == ""

    async def test_a_full_last_page_ends_the_listing(self, store: ObjectStore) -> None:
        for name in ("a", "b"):
            await store.create(workload(name))
        assert (await store.list(Workload, limit=2)).next == ""

    async def test_filters_narrow_and_combine(self, store: ObjectStore) -> None:
        await store.create(workload("one", labels={"team": "a", "carrel.dev/run": '"7"'}))
        await store.create(workload("two", "speech", user="bob", labels={"team": "a"}))
        desk = await store.create(workload("desk", kind="workspace", labels={"team": "b"}))
        desk.status.phase = "running"
        await store.update_status(desk)

        async def names(**filters: Any) -> list[str]:
            return [obj.meta.name for obj in (await store.list(Workload, **filters)).items]

        assert await names(projects=["vision"]) == ["one", "desk"]
        assert await names(projects=["vision", "speech"], user="bob") == ["two"]
        assert await names(projects=[]) == []
        assert await names(phases=["running", "failed"]) == ["desk"]
        assert await names(phases=["pending"], projects=["speech"]) == ["two"]
        assert await names(workload_kind="training") == ["one", "two"]
        assert await names(labels={"team": "a"}) == ["one", "two"]
        assert await names(labels={"team": "a", "carrel.dev/run": '"7"'}) == ["one"]
        assert await names(labels={"team": "c"}) == []
        assert await names(labels={"team": "a"}, limit=1, after="") == ["one"]

    async def test_label_filters_follow_updates(self, store: ObjectStore) -> None:
        made = await store.create(workload(labels={"team": "a"}))
        made.meta.labels = {"team": "b"}
        await store.update(made)
        assert not (await store.list(Workload, labels={"team": "a"})).items
        assert len((await store.list(Workload, labels={"team": "b"})).items) == 1

    async def test_bad_page_arguments_are_refused(self, store: ObjectStore) -> None:
        for arguments in ({"limit": 0}, {"limit": -1}, {"after": "no-number"}, {"after": "-1"}):
            with pytest.raises(Exception, match=r"limit|after"):
                await store.list(Workload, **arguments)


class Watching:
    """Each change exactly once, in order, over every seam."""

    async def test_delivers_every_kind_of_change(self, store: ObjectStore) -> None:
        made = await store.create(workload())
        made.spec.suspend = True
        updated = await store.update(made)
        updated.status.phase = "stopped"
        stopped = await store.update_status(updated)
        gone = await store.delete(Workload, "train-1", "vision")
        changes = await take(store.watch(Workload, 0), 4)
        assert [change.type for change in changes] == [
            ChangeType.ADDED,
            ChangeType.MODIFIED,
            ChangeType.MODIFIED,
            ChangeType.DELETED,
        ]
        made.spec.suspend = False
        updated.status.phase = "pending"
        assert [change.object for change in changes] == [made, updated, stopped, gone]
        for change in changes:
            assert change.version == change.object.meta.resource_version

    async def test_delivers_one_kind_only(self, store: ObjectStore) -> None:
        watch = store.watch(Project, 0)
        await store.create(workload())
        await store.create(project())
        await store.create(workload("train-2"))
        await store.create(project("speech"))
        assert story(await take(watch, 2)) == [("vision", "added"), ("speech", "added")]

    async def test_a_long_backlog_is_delivered_whole(self, store: ObjectStore) -> None:
        names = [f"train-{number}" for number in range(600)]
        await asyncio.gather(*(store.create(workload(name)) for name in names))
        assert story(await take(store.watch(Workload, 0), 600)) == [
            (name, "added") for name in names
        ]

    async def test_goes_on_live(self, store: ObjectStore) -> None:
        await store.create(workload("before"))
        watch = store.watch(Workload, (await store.list(Workload)).version)
        following = asyncio.ensure_future(take(watch, 2))
        await asyncio.sleep(0.05)
        assert not following.done()
        await store.create(workload("one"))
        await store.delete(Workload, "before", "vision")
        assert story(await following) == [("one", "added"), ("before", "deleted")]

    async def test_no_gap_between_list_and_watch(self, store: ObjectStore) -> None:
        async def write() -> None:
            for number in range(60):
                made = await store.create(workload(f"train-{number}"))
                if number % 3 == 0:
                    await store.update_status(made)
                if number % 4 == 0:
                    await store.delete(Workload, made.meta.name, "vision")

        async def follow() -> dict[str, int]:
            page = await store.list(Workload)
            known = {obj.meta.uid: obj.meta.resource_version for obj in page.items}
            last = page.version
            watch = store.watch(Workload, page.version)
            while (change := (await take(watch, 1))[0]).object.meta.name != "end":
                assert change.version > last
                last = change.version
                if change.type is ChangeType.DELETED:
                    del known[change.object.meta.uid]
                else:
                    added = change.type is ChangeType.ADDED
                    assert added == (change.object.meta.uid not in known)
                    known[change.object.meta.uid] = change.version
            return known

        writing = asyncio.ensure_future(write())
        followers = []
        for _ in range(6):
            followers.append(asyncio.ensure_future(follow()))
            await asyncio.sleep(0.005)
        await writing
        items = (await store.list(Workload)).items
        await store.create(workload("end"))
        expected = {obj.meta.uid: obj.meta.resource_version for obj in items}
        assert await asyncio.gather(*followers) == [expected] * 6

    async def test_a_cancelled_wait_loses_nothing(self, store: ObjectStore) -> None:
        watch = store.watch(Workload, 0)
        names = [f"train-{number}" for number in range(20)]

        async def write() -> None:
            for name in names:
                await store.create(workload(name))
                await asyncio.sleep(0)

        writing = asyncio.ensure_future(write())
        seen: list[Change[Any]] = []
        waits = 0
        async with asyncio.timeout(PATIENCE):
            while len(seen) < len(names):
                waits += 1
                waiting = asyncio.ensure_future(anext(watch))
                await asyncio.wait([waiting], timeout=0.0005 * (waits % 5))
                if waiting.done():
                    seen.append(waiting.result())
                else:
                    waiting.cancel()
                    await asyncio.wait([waiting])
        await writing
        assert story(seen) == [(name, "added") for name in names]

    async def test_delivered_objects_are_the_watchers_own(self, store: ObjectStore) -> None:
        first, second = store.watch(Workload, 0), store.watch(Workload, 0)
        made = await store.create(workload(labels={"team": "a"}))
        (one,) = await take(first, 1)
        one.object.spec.environment["MINE"] = "1"
        one.object.meta.labels.clear()
        (two,) = await take(second, 1)
        assert two.object == made

    async def test_survives_reopening(self, stores: Stores) -> None:
        first = await stores.open()
        await first.create(workload("one"))
        version = (await first.list(Workload)).version
        await first.create(workload("two"))
        await first.close()
        second = await stores.open()
        await second.create(workload("three"))
        changes = await take(second.watch(Workload, version), 2)
        assert story(changes) == [("two", "added"), ("three", "added")]

    async def test_sees_changes_of_another_opening(self, stores: Stores) -> None:
        mine, other = await stores.open(), await stores.open()
        watch = mine.watch(Workload, 0)
        following = asyncio.ensure_future(take(watch, 3))
        await asyncio.sleep(0.05)
        await other.create(workload("theirs"))
        await mine.create(workload("ours"))
        await other.delete(Workload, "ours", "vision")
        assert story(await following) == [
            ("theirs", "added"),
            ("ours", "added"),
            ("ours", "deleted"),
        ]

    async def test_openings_share_names_and_versions(self, stores: Stores) -> None:
        openings = [await stores.open() for _ in range(3)]
        made = await asyncio.gather(
            *(
                opening.create(workload(f"train-{number}-{turn}"))
                for turn in range(10)
                for number, opening in enumerate(openings)
            )
        )
        versions = {obj.meta.resource_version for obj in made}
        assert len(versions) == 30
        changes = await take(openings[0].watch(Workload, 0), 30)
        assert {change.version for change in changes} == versions
        with pytest.raises(AlreadyExists):
            await openings[1].create(workload("train-0-0"))

    async def test_expires_when_changes_are_no_longer_kept(self, stores: Stores) -> None:
        store = await stores.open(keep_changes=20)
        for number in range(50):
            await store.create(workload(f"train-{number}"))
        with pytest.raises(Expired):
            await take(store.watch(Workload, 0), 1)
        page = await store.list(Workload)
        assert len(page.items) == 50
        kept = await take(store.watch(Workload, page.version - 20), 20)
        assert story(kept) == [(f"train-{number}", "added") for number in range(30, 50)]

    async def test_a_slow_watch_expires_too(self, stores: Stores) -> None:
        store = await stores.open(keep_changes=20)
        watch = store.watch(Workload, 0)
        await store.create(workload("first"))
        assert story(await take(watch, 1)) == [("first", "added")]
        for number in range(50):
            await store.create(workload(f"train-{number}"))
        with pytest.raises(Expired):
            await take(watch, 1)

    async def test_a_watch_of_a_quiet_kind_does_not_expire(self, stores: Stores) -> None:
        store = await stores.open(keep_changes=100)
        following = asyncio.ensure_future(take(store.watch(Project, 0), 1))
        for number in range(150):
            await store.create(workload(f"train-{number}"))
            await asyncio.sleep(0.002)
        await store.create(project())
        assert story(await following) == [("vision", "added")]

    async def test_a_version_of_the_future_expires(self, store: ObjectStore) -> None:
        version = (await store.list(Workload)).version
        with pytest.raises(Expired):
            await take(store.watch(Workload, version + 1), 1)

    async def test_dropped_changes_leave_objects_whole(self, stores: Stores) -> None:
        store = await stores.open(keep_changes=10)
        await store.create(workload("still"))
        busy = await store.create(workload("busy"))
        for number in range(40):
            busy.spec.backoff_limit = number
            busy = await store.update(busy)
        assert (await store.get(Workload, "still", "vision")).spec.user == "ada"
        assert (await store.get(Workload, "busy", "vision")).spec.backoff_limit == 39
        kept = await take(store.watch(Workload, busy.meta.resource_version - 10), 10)
        assert [change.object.spec.backoff_limit for change in kept] == list(range(30, 40))

    async def test_ends_when_the_store_closes(self, stores: Stores) -> None:
        store = await stores.open()
        waiting = asyncio.ensure_future(anext(store.watch(Workload, 0), None))
        await asyncio.sleep(0.05)
        await store.close()
        async with asyncio.timeout(PATIENCE):
            assert await waiting is None


class ObjectStoreContract(ReadingAndWriting, Listing, Watching):
    """Every rule of ``ObjectStore``."""
