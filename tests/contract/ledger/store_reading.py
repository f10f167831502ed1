"""The contract of ``ObjectStore`` for reading, writing and listing."""

import asyncio
from typing import Any

import pytest

from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, ObjectStore, VersionConflict
from carrel_schema.objects import Project, ReasonInfo, Workload, WorkloadStatus
from contract.ledger.store_tools import Stores, project, workload


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
        with pytest.raises(ObjectExists):
            await store.create(workload("same", "vision", user="bob"))
        assert await store.get(Workload, "same", "vision") == first

    async def test_uids_are_unique(self, store: ObjectStore) -> None:
        taken = await store.create(workload("one"))
        second = workload("two")
        second.meta.uid = taken.meta.uid
        with pytest.raises(ObjectExists):
            await store.create(second)
        assert (await store.get_by_uid(Workload, taken.meta.uid)).meta.name == "one"

    async def test_what_is_not_there_is_not_found(self, store: ObjectStore) -> None:
        made = await store.create(workload())
        with pytest.raises(ObjectNotFound):
            await store.get(Workload, "train-1", "speech")
        with pytest.raises(ObjectNotFound):
            await store.get(Workload, "train-2", "vision")
        with pytest.raises(ObjectNotFound):
            await store.get_by_uid(Workload, "no-such-uid")
        with pytest.raises(ObjectNotFound):
            await store.get_by_uid(Project, made.meta.uid)
        with pytest.raises(ObjectNotFound):
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
        with pytest.raises(VersionConflict):
            await store.update(old)
        with pytest.raises(VersionConflict):
            await store.update_status(old)
        with pytest.raises(VersionConflict):
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
        with pytest.raises(ObjectNotFound):
            await store.get(Workload, "train-1", "vision")
        with pytest.raises(ObjectNotFound):
            await store.update(made)
        with pytest.raises(ObjectNotFound):
            await store.update_status(made)

    async def test_a_new_object_of_an_old_name_is_another_one(self, store: ObjectStore) -> None:
        old = await store.create(workload())
        await store.delete(Workload, "train-1", "vision")
        new = await store.create(workload())
        assert new.meta.uid != old.meta.uid
        with pytest.raises(ObjectNotFound):
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
                except VersionConflict:
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

    async def test_the_newest_come_first_on_demand(self, store: ObjectStore) -> None:
        for name in ("a", "b", "c"):
            await store.create(workload(name))
        first = await store.list(Workload, limit=2, newest_first=True)
        await store.create(workload("late"))
        rest = await store.list(Workload, limit=2, newest_first=True, after=first.next)
        seen = [[obj.meta.name for obj in page.items] for page in (first, rest)]
        assert seen == [["c", "b"], ["a"]]
        assert rest.next == ""

    async def test_a_full_last_page_ends_the_listing(self, store: ObjectStore) -> None:
        for name in ("a", "b"):
            await store.create(workload(name))
        assert (await store.list(Workload, limit=2)).next == ""

    async def test_filters_narrow_and_combine(self, store: ObjectStore) -> None:
        await store.create(workload("one", labels={"team": "a", "carrel.dev/run": '"7"'}))
        await store.create(workload("two", "speech", user="bob", labels={"team": "a"}))
        workspace = await store.create(workload("desk", kind="workspace", labels={"team": "b"}))
        workspace.status.phase = "running"
        await store.update_status(workspace)

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
        assert await names(search="on") == ["one"]
        assert await names(search="bob") == ["two"]
        assert await names(search="%") == []
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
