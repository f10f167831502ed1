"""Creating many at once, secrets of many, watches that follow specifications only."""

import asyncio

import pytest

from carrel_scheduler.ledger.records import Ledger, NewWorkload
from carrel_scheduler.ledger.store import ChangeType, ObjectExists
from carrel_schema.objects import Workload
from contract.ledger.ledger_tools import Ledgers, transition
from contract.ledger.store_tools import TIMEOUT_SECONDS, workload


def new(name: str, project: str = "vision", **secrets: str) -> NewWorkload:
    made = workload(name, project)
    return NewWorkload(workload=made, secrets=secrets, transition=transition(made, "pending"))


class CreatingMany:
    """``create_workloads``: each as ``create_workload`` does, those whose name is free.

    ``some`` is more than one statement of a database takes.
    """

    some = 300

    async def test_objects_rows_secrets_and_changes(self, store: Ledger) -> None:
        version = (await store.list(Workload)).version
        items = [new(f"n{number}") for number in range(self.some)] + [new("with", A="1", B="2")]
        creations = await store.create_workloads(items)
        assert [one.found for one in creations] == [None] * (self.some + 1)
        stored = (await store.list(Workload)).items
        assert [one.meta for one in stored] == [creation.meta for creation in creations]
        assert [one.meta.generation for one in stored] == [1] * (self.some + 1)
        assert len({one.meta.uid for one in stored}) == self.some + 1
        assert [one.spec for one in stored] == [item.workload.spec for item in items]
        rows = await store.transitions(limit=1000)
        assert [row.workload_uid for row in rows] == [one.meta.uid for one in stored]
        last = stored[-1].meta.uid
        assert await store.secrets_of([one.meta.uid for one in stored]) == {
            last: {"A": "1", "B": "2"}
        }
        watch = store.watch(Workload, version)
        changes = [await anext(watch) for _ in range(self.some + 1)]
        told = sorted((change.object for change in changes), key=lambda one: one.meta.created_at)
        assert told == list(stored)
        assert {change.type for change in changes} == {ChangeType.ADDED}

    async def test_a_taken_name_is_found_and_left_alone(self, store: Ledger) -> None:
        (first,) = await store.create_workloads([new("one", A="1")])
        before = await store.get(Workload, "one", "vision")
        creations = await store.create_workloads(
            [new("two"), new("one", A="2"), new("two"), new("one", "speech")]
        )
        assert creations[0].found is None
        assert creations[1].found == before
        assert creations[1].meta == first.meta
        assert creations[2].found is not None
        assert creations[2].meta == creations[0].meta
        assert creations[3].found is None
        assert await store.get(Workload, "one", "vision") == before
        assert await store.secrets(first.meta.uid) == {"A": "1"}
        assert len(await store.transitions()) == 3

    async def test_nothing_is_written_when_a_uid_is_taken(self, store: Ledger) -> None:
        (first,) = await store.create_workloads([new("one")])
        thief = new("three")
        thief.workload.meta.uid = first.meta.uid
        with pytest.raises(ObjectExists):
            await store.create_workloads([new("two"), thief])
        assert [one.meta.name for one in (await store.list(Workload)).items] == ["one"]

    async def test_at_the_same_time_each_name_goes_to_one(self, stores: Ledgers) -> None:
        ledgers = [await stores.open() for _ in range(3)]
        items = [new(f"n{number}") for number in range(40)]
        results = await asyncio.gather(*(ledger.create_workloads(items) for ledger in ledgers))
        for creations in zip(*results, strict=True):
            assert [one.found for one in creations].count(None) == 1
            assert len({one.meta.uid for one in creations}) == 1

    async def test_none_at_all(self, store: Ledger) -> None:
        assert await store.create_workloads([]) == []
        assert await store.secrets_of([]) == {}


class WatchingSpecifications:
    """``watch(..., statuses=False)``: whatever it may leave out, never a specification."""

    async def test_statuses_are_left_out_at_most(self, store: Ledger) -> None:
        version = (await store.list(Workload)).version
        watch = store.watch(Workload, version, statuses=False)
        (made,) = await store.create_workloads([new("one")])
        assert (await anext(watch)).object.meta == made.meta
        one = await store.get(Workload, "one", "vision")
        epoch = await store.begin_epoch()
        for phase in ("starting", "running"):
            one.status.phase = phase
            (one.meta,) = await store.record(epoch=epoch, statuses=[one])
        one.spec.suspend = True
        changed = await store.update(one)
        await store.delete(Workload, "one", "vision")
        seen = [await anext(watch)]
        while seen[-1].type is not ChangeType.DELETED:
            seen.append(await anext(watch))
        told = [change.object for change in seen if change.object.meta.generation == 2]
        assert told[0] == changed
        assert len(told) == 2

    async def test_what_another_process_wrote_is_heard_in_order(self, stores: Ledgers) -> None:
        one, other = await stores.open(), await stores.open()
        watch = one.watch(Workload, (await one.list(Workload)).version, statuses=False)
        names = []
        for number, ledger in enumerate((one, other, one, other, other, one)):
            await ledger.create_workloads([new(f"n{number}")])
            names.append(f"n{number}")
        async with asyncio.timeout(TIMEOUT_SECONDS):
            assert [(await anext(watch)).object.meta.name for _ in names] == names
