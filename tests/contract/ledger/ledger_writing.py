"""The contract of ``Ledger`` for writing: all or nothing, each call for itself, one scheduler."""

import asyncio
import math
from typing import Any

import pytest

from carrel_scheduler.ledger.errors import InvalidArgument, LedgerClosed
from carrel_scheduler.ledger.records import Fenced, Ledger, MetricPoint
from carrel_scheduler.ledger.store import ChangeType, ObjectExists, ObjectNotFound, VersionConflict
from carrel_schema.objects import Workload
from contract.ledger.ledger_tools import (
    NOW,
    Ledgers,
    decision,
    everything,
    submit,
    transition,
    without_ids,
)
from contract.ledger.store_tools import take, workload


class Creating:
    """A workload, its first row and its secrets."""

    async def test_create_workload_is_one_step(self, store: Ledger) -> None:
        made = await submit(store, TOKEN="s3cret")
        assert made == await store.get(Workload, "train-1", "vision")
        (row,) = await store.transitions(workload_uid=made.meta.uid)
        assert (row.workload_uid, row.to_phase, row.user) == (made.meta.uid, "pending", "ada")
        assert await store.secrets(made.meta.uid) == {"TOKEN": "s3cret"}

    async def test_a_taken_name_leaves_nothing_behind(self, store: Ledger) -> None:
        made = await submit(store, TOKEN="first")
        before = await everything(store)
        with pytest.raises(ObjectExists):
            await submit(store, TOKEN="second")
        assert await everything(store) == before
        assert await store.secrets(made.meta.uid) == {"TOKEN": "first"}

    async def test_one_failing_call_does_not_fail_others(
        self, store: Ledger, beginning: int
    ) -> None:
        await submit(store, "taken")
        names = ["a", "taken", "b", "taken", "c"] * 8
        names = [name if name == "taken" else f"{name}-{turn}" for turn, name in enumerate(names)]
        results = await asyncio.gather(
            *(submit(store, name) for name in names), return_exceptions=True
        )
        for name, result in zip(names, results, strict=True):
            assert isinstance(result, ObjectExists if name == "taken" else Workload)
        expected = {"taken", *names}
        assert {obj.meta.name for obj in (await store.list(Workload)).items} == expected
        assert {row.workload for row in await store.transitions()} == expected
        changes = await take(store.watch(Workload, beginning), len(expected))
        assert {change.object.meta.name for change in changes} == expected

    async def test_what_cannot_be_stored_fails_alone(self, store: Ledger) -> None:
        broken = workload("broken")
        broken.status.metrics = {"loss": math.nan}
        huge = workload("huge")
        rows = [
            transition(huge, "pending", memory_bytes=2**70),
            transition(huge, "pending"),
        ]
        results = await asyncio.gather(
            submit(store, "a"),
            store.create(broken),
            store.create_workload(huge, secrets={}, transition=rows[0]),
            submit(store, "b"),
            return_exceptions=True,
        )
        kinds = [type(result) for result in results]
        assert kinds == [Workload, InvalidArgument, InvalidArgument, Workload]
        names = [obj.meta.name for obj in (await store.list(Workload)).items]
        assert names == ["a", "b"]

    async def test_a_cancelled_caller_disturbs_nobody(self, store: Ledger) -> None:
        calls = [asyncio.ensure_future(submit(store, f"train-{number}")) for number in range(20)]
        await asyncio.sleep(0)
        for call in calls[::2]:
            call.cancel()
        results = await asyncio.gather(*calls, return_exceptions=True)
        names = {obj.meta.name for obj in (await store.list(Workload)).items}
        for number, result in enumerate(results):
            if number % 2:
                assert isinstance(result, Workload)
                assert f"train-{number}" in names

    async def test_closing_finishes_what_was_asked_for(self, stores: Ledgers) -> None:
        first = await stores.open()
        calls = [asyncio.ensure_future(submit(first, f"train-{number}")) for number in range(50)]
        await asyncio.sleep(0)
        await first.close()
        await asyncio.gather(*calls)
        with pytest.raises(LedgerClosed):
            await submit(first, "late")
        with pytest.raises(LedgerClosed):
            await first.list(Workload)
        await first.close()
        second = await stores.open()
        assert len((await second.list(Workload)).items) == 50


class Recording:
    """``record``: all or nothing, by the present scheduler only.

    ``many`` is more than one statement of a database takes.
    """

    many = 600

    async def test_writes_statuses_and_rows_together(self, store: Ledger) -> None:
        one, two = await submit(store, "one"), await submit(store, "two")
        version = (await store.list(Workload)).version
        epoch = await store.begin_epoch()
        one.status.phase, two.status.phase = "starting", "failed"
        rows = [
            transition(two, "failed"),
            transition(one, "starting", gpu_milli=500, borrowed=True),
        ]
        actions = [decision(one, 1), decision(two, 1)]
        made = await store.record(
            epoch=epoch, statuses=[two, one], transitions=rows, decisions=actions
        )
        assert [meta.name for meta in made] == ["two", "one"]
        stored = [await store.get(Workload, name, "vision") for name in ("two", "one")]
        assert [obj.status for obj in stored] == [two.status, one.status]
        assert list(made) == [obj.meta for obj in stored]
        assert without_ids((await store.transitions())[2:]) == rows
        assert without_ids(await store.decisions()) == actions
        changes = await take(store.watch(Workload, version), 2)
        stored.sort(key=lambda obj: obj.meta.resource_version)
        assert [change.object for change in changes] == stored

    async def test_status_only_is_taken_from_what_is_given(self, store: Ledger) -> None:
        made = await submit(store)
        given = await store.get(Workload, "train-1", "vision")
        given.status.phase, given.spec.user = "running", "mallory"
        given.meta.labels = {"mallory": "yes"}
        await store.record(epoch=await store.begin_epoch(), statuses=[given])
        stored = await store.get(Workload, "train-1", "vision")
        assert stored.spec == made.spec
        assert stored.meta.generation == 1
        assert stored.meta.labels == made.meta.labels

    async def test_nothing_is_written_when_one_thing_is_refused(self, store: Ledger) -> None:
        one, two = await submit(store, "one"), await submit(store, "two")
        epoch = await store.begin_epoch()
        fresh = await store.update(two)
        before = await everything(store)
        rows = {"transitions": [transition(one, "starting")], "decisions": [decision(one, 1)]}
        unknown = workload("unknown")
        unknown.meta.uid = "no-such-uid"
        attempts: list[tuple[type[Exception], dict[str, Any]]] = [
            (VersionConflict, {"statuses": [one, two]}),
            (VersionConflict, {"statuses": [one], "removed": [two]}),
            (VersionConflict, {"statuses": [one, one]}),
            (ObjectNotFound, {"statuses": [one, unknown]}),
            (ObjectNotFound, {"removed": [one, unknown]}),
            (Fenced, {"statuses": [one, fresh], "epoch": epoch - 1}),
        ]
        for error, given in attempts:
            with pytest.raises(error):
                await store.record(**{"epoch": epoch, **rows, **given})
            assert await everything(store) == before

    async def test_an_older_epoch_is_fenced_out(self, stores: Ledgers) -> None:
        old, new = await stores.open(), await stores.open()
        made = await submit(old)
        first = await old.begin_epoch()
        (made.meta,) = await old.record(epoch=first, statuses=[made])
        second = await new.begin_epoch()
        assert second > first
        before = await everything(new)
        with pytest.raises(Fenced):
            await old.record(epoch=first, statuses=[made], transitions=[transition(made, "failed")])
        with pytest.raises(Fenced):
            await old.record(epoch=first)
        assert await everything(new) == before
        assert len(await new.record(epoch=second, statuses=[made])) == 1

    async def test_concurrent_schedulers_get_different_epochs(self, stores: Ledgers) -> None:
        ledgers = [await stores.open() for _ in range(3)]
        epochs = await asyncio.gather(*(ledger.begin_epoch() for ledger in ledgers * 4))
        assert len(set(epochs)) == 12

    async def test_epochs_last(self, stores: Ledgers) -> None:
        first = await stores.open()
        epoch = await first.begin_epoch()
        await first.close()
        assert await (await stores.open()).begin_epoch() == epoch + 1

    async def test_a_removed_workload_leaves_its_history(self, store: Ledger) -> None:
        kept, gone = await submit(store, "kept", A="1"), await submit(store, "gone", B="2")
        version = (await store.list(Workload)).version
        await store.add_metrics(gone.meta.uid, [MetricPoint(at=NOW, step=1, name="loss", value=1)])
        gone.status.phase = "stopped"
        row = transition(gone, "stopped")
        await store.record(
            epoch=await store.begin_epoch(), statuses=[gone], transitions=[row], removed=[gone]
        )
        assert [obj.meta.name for obj in (await store.list(Workload)).items] == ["kept"]
        assert await store.secrets(gone.meta.uid) == {}
        assert await store.secrets(kept.meta.uid) == {"A": "1"}
        phases = [row.to_phase for row in await store.transitions(workload_uid=gone.meta.uid)]
        assert phases == ["pending", "stopped"]
        assert len((await store.metrics(gone.meta.uid))["loss"]) == 1
        changes = await take(store.watch(Workload, version), 2)
        assert [change.type for change in changes] == [ChangeType.MODIFIED, ChangeType.DELETED]
        assert changes[1].object.status.phase == "stopped"

    async def test_hundreds_at_once(self, store: Ledger) -> None:
        made = await asyncio.gather(
            *(submit(store, f"train-{number}") for number in range(self.many))
        )
        epoch = await store.begin_epoch()
        for obj in made:
            obj.status.phase = "starting"
        stored = await store.record(
            epoch=epoch,
            statuses=made,
            transitions=[transition(obj, "starting") for obj in made],
            decisions=[decision(obj, 1) for obj in made],
        )
        assert [meta.name for meta in stored] == [obj.meta.name for obj in made]
        versions = [meta.resource_version for meta in stored]
        assert len(set(versions)) == self.many
        assert len((await store.list(Workload, phases=["starting"])).items) == self.many
        for obj, meta in zip(made, stored, strict=True):
            obj.meta = meta
        assert await store.record(epoch=epoch, removed=made) == []
        assert not (await store.list(Workload)).items
