"""The contract of stores that keep as many changes as they are told and count on their own."""

import asyncio

import pytest

from carrel_scheduler.ledger.store import Expired, ObjectStore
from carrel_schema.objects import Project, Workload
from contract.ledger.store_tools import Stores, project, story, take, workload


class Forgetting:
    """Changes that are no longer kept expire, and nothing else is lost with them."""

    async def test_a_version_of_the_future_expires(self, store: ObjectStore) -> None:
        version = (await store.list(Workload)).version
        with pytest.raises(Expired):
            await take(store.watch(Workload, version + 1), 1)

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
            # Longer now and then, so that it can keep up on any machine.
            await asyncio.sleep(0.002 if number % 25 else 0.1)
        await store.create(project())
        assert story(await following) == [("vision", "added")]

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
