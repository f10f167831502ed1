"""The contract of ``ObjectStore.watch``: each change exactly once, in order, over every seam."""

import asyncio
from typing import Any

import pytest

from carrel_scheduler.ledger.store import (
    Change,
    ChangeType,
    ObjectExists,
    ObjectStore,
)
from carrel_schema.objects import Project, Workload
from contract.ledger.store_tools import TIMEOUT_SECONDS, Stores, project, story, take, workload


class Watching:
    """Changes are delivered exactly once and in order, over every interruption.

    ``many`` is more than a store reads at once.
    """

    many = 600

    async def test_delivers_every_kind_of_change(self, store: ObjectStore, beginning: int) -> None:
        made = await store.create(workload())
        made.spec.suspend = True
        updated = await store.update(made)
        updated.status.phase = "stopped"
        stopped = await store.update_status(updated)
        gone = await store.delete(Workload, "train-1", "vision")
        changes = await take(store.watch(Workload, beginning), 4)
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

    async def test_delivers_one_kind_only(self, store: ObjectStore, beginning: int) -> None:
        watch = store.watch(Project, beginning)
        await store.create(workload())
        await store.create(project())
        await store.create(workload("train-2"))
        await store.create(project("speech"))
        assert story(await take(watch, 2)) == [("vision", "added"), ("speech", "added")]

    async def test_a_long_backlog_is_delivered_whole(
        self, store: ObjectStore, beginning: int
    ) -> None:
        names = [f"train-{number}" for number in range(self.many)]
        made = await asyncio.gather(*(store.create(workload(name)) for name in names))
        made.sort(key=lambda obj: obj.meta.resource_version)
        assert story(await take(store.watch(Workload, beginning), self.many)) == [
            (obj.meta.name, "added") for obj in made
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

    async def test_a_cancelled_wait_loses_nothing(self, store: ObjectStore, beginning: int) -> None:
        watch = store.watch(Workload, beginning)
        names = [f"train-{number}" for number in range(20)]

        async def write() -> None:
            for name in names:
                await store.create(workload(name))
                await asyncio.sleep(0)

        writing = asyncio.ensure_future(write())
        seen: list[Change[Any]] = []
        waits = 0
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while len(seen) < len(names):
                waits += 1
                waiting = asyncio.ensure_future(anext(watch))
                await asyncio.wait([waiting], timeout=0.0005 * (waits % 5) * (1 + waits // 50))
                if waiting.done():
                    seen.append(waiting.result())
                else:
                    waiting.cancel()
                    await asyncio.wait([waiting])
        await writing
        assert story(seen) == [(name, "added") for name in names]

    async def test_delivered_objects_are_the_watchers_own(
        self, store: ObjectStore, beginning: int
    ) -> None:
        first, second = store.watch(Workload, beginning), store.watch(Workload, beginning)
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
        watch = mine.watch(Workload, (await mine.list(Workload)).version)
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
        beginning = (await openings[0].list(Workload)).version
        made = await asyncio.gather(
            *(
                opening.create(workload(f"train-{number}-{turn}"))
                for turn in range(10)
                for number, opening in enumerate(openings)
            )
        )
        versions = {obj.meta.resource_version for obj in made}
        assert len(versions) == 30
        changes = await take(openings[0].watch(Workload, beginning), 30)
        assert {change.version for change in changes} == versions
        with pytest.raises(ObjectExists):
            await openings[1].create(workload("train-0-0"))

    async def test_ends_when_the_store_closes(self, stores: Stores) -> None:
        store = await stores.open()
        beginning = (await store.list(Workload)).version
        waiting = asyncio.ensure_future(anext(store.watch(Workload, beginning), None))
        await asyncio.sleep(0.05)
        await store.close()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert await waiting is None
