"""The contract of ``Ledger`` on a cluster, and what a crash leaves between objects and rows."""

import asyncio
from typing import Any

import pytest
from typing_extensions import override

from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.resources import ledger as ledger_module
from carrel_scheduler.ledger.resources.ledger import KubernetesLedger
from carrel_scheduler.ledger.resources.rows import entry_of
from carrel_scheduler.ledger.resources.store import KubernetesStore
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_schema.objects import TaskInfo, Workload
from contract.ledger.ledger_batches import new
from contract.ledger.ledger_contract import LedgerContract
from contract.ledger.ledger_tools import submit, transition
from contract.ledger.store_tools import workload
from k8s.ours import MARKS, client, kubectl, ours
from k8s.stores import KubernetesLedgers, beginning, ledgers

__all__ = ["beginning", "client", "kubectl", "ledgers", "ours"]

pytestmark = MARKS


@pytest.fixture
def stores(ledgers: KubernetesLedgers) -> KubernetesLedgers:
    """What the contract calls them."""
    return ledgers


@pytest.fixture
async def store(ledgers: KubernetesLedgers) -> KubernetesLedger:
    """One opening."""
    return await ledgers.open()


class TestLedger(LedgerContract):
    """Every rule, but that a turn is one transaction."""

    many = 100
    some = 50

    async def test_a_name_that_is_just_being_taken_is_waited_for(
        self, stores: KubernetesLedgers, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ledger_module, "ARRIVAL_TRIES", 600)
        first, second = await stores.open(), await stores.open()
        entered, gate, create = asyncio.Event(), asyncio.Event(), KubernetesStore.create
        get, looked = KubernetesStore.get_by_uid, asyncio.Event()

        async def slow(self: KubernetesStore, obj: Workload) -> Workload:
            if self is first:
                entered.set()
                await gate.wait()
            return await create(self, obj)

        async def watched(self: KubernetesStore, kind: type[Workload], uid: str) -> Workload:
            try:
                return await get(self, kind, uid)
            except ObjectNotFound:
                looked.set()
                raise

        monkeypatch.setattr(KubernetesStore, "create", slow)
        monkeypatch.setattr(KubernetesStore, "get_by_uid", watched)
        one = asyncio.create_task(first.create_workloads([new("one")]))
        await entered.wait()
        two = asyncio.create_task(second.create_workloads([new("one")]))
        looking = asyncio.create_task(looked.wait())
        await asyncio.wait([two, looking], return_when=asyncio.FIRST_COMPLETED)
        assert not two.done()
        gate.set()
        (made,), (found,) = await one, await two
        assert (made.found, found.meta.uid) == (None, made.meta.uid)
        assert found.found is not None

    @override
    async def test_nothing_is_written_when_one_thing_is_refused(self, store: Ledger) -> None:
        """Statuses may be; rows are not, and writing again what was read again ends well."""
        one, two = await submit(store, "one"), await submit(store, "two")
        epoch = await store.begin_epoch()
        await store.update(two)
        rows = await store.transitions()
        one.status.phase = two.status.phase = "starting"
        given: dict[str, Any] = {"epoch": epoch, "transitions": [transition(one, "starting")]}
        with pytest.raises(VersionConflict):
            await store.record(statuses=[one, two], **given)
        unknown = workload("unknown")
        unknown.meta.uid = "no-such-uid"
        with pytest.raises(ObjectNotFound):
            await store.record(statuses=[unknown], **given)
        assert await store.transitions() == rows
        for obj in (one, two):
            obj.meta = (await store.get_by_uid(Workload, obj.meta.uid)).meta
        made = await store.record(statuses=[one, two], **given)
        assert [meta.name for meta in made] == ["one", "two"]
        assert len(await store.transitions()) == len(rows) + 1


class TestMending:
    """Whoever takes over finds halves, and makes them whole or undoes them."""

    async def test_names_are_given_once_whatever_the_kind(self, store: KubernetesLedger) -> None:
        await submit(store, "same")
        second = workload("same", kind="workspace")
        with pytest.raises(ObjectExists):
            await store.create_workload(
                second, secrets={}, transition=transition(second, "pending")
            )
        assert len((await store.list(Workload)).items) == 1

    async def test_what_the_cluster_refuses_leaves_nothing(self, store: KubernetesLedger) -> None:
        wrong = workload("wrong", command=[])
        with pytest.raises(Exception, match="a `command` with at least the program to run"):
            await store.create_workload(
                wrong, secrets={"A": "1"}, transition=transition(wrong, "pending")
            )
        assert await store.transitions() == []
        assert (await store.rows.list(Workload)).items == []

    async def test_a_status_without_its_row_gets_one(self, store: KubernetesLedger) -> None:
        made = await submit(store)
        await store.begin_epoch()
        made.status.phase = "running"
        made.status.tasks = [TaskInfo(index=0, attempt=0, node="n1", devices=(2,))]
        await store.update_status(made)
        epoch = await store.begin_epoch()
        last = (await store.transitions(workload_uid=made.meta.uid))[-1]
        assert (last.from_phase, last.to_phase, last.epoch) == ("pending", "running", epoch)
        assert (last.node, last.devices, last.cpu_milli) == ("n1", (2,), 100)
        await store.begin_epoch()
        assert len(await store.transitions(workload_uid=made.meta.uid)) == 2

    async def test_an_entry_whose_object_was_never_made_goes(self, store: KubernetesLedger) -> None:
        half = workload("half")
        half.meta.uid, half.meta.created_at = "half-uid", 1.0
        await store.rows.create_workload(
            entry_of(half), secrets={}, transition=transition(half, "pending", from_phase="")
        )
        await store.begin_epoch()
        assert await store.transitions(workload_uid="half-uid") == []
        assert (await submit(store, "half")).meta.uid != "half-uid"

    async def test_what_was_removed_by_force_is_counted_to_its_end(
        self, store: KubernetesLedger
    ) -> None:
        made = await submit(store)
        epoch = await store.begin_epoch()
        made.status.phase = "running"
        (made.meta,) = await store.record(
            epoch=epoch, statuses=[made], transitions=[transition(made, "running", cpu_milli=100)]
        )
        await KubernetesStore.remove(store, made)
        await store.begin_epoch()
        last = (await store.transitions(workload_uid=made.meta.uid))[-1]
        assert (last.to_phase, last.cpu_milli) == ("stopped", 0)
        assert (await submit(store)).meta.uid != made.meta.uid

    async def test_who_removed_it_by_force_is_not_in_the_way(self, store: KubernetesLedger) -> None:
        made = await submit(store)
        epoch = await store.begin_epoch()
        await KubernetesStore.remove(store, made)
        with pytest.raises(ObjectNotFound):
            await store.record(epoch=epoch, statuses=[made])
        ended = [transition(made, "stopped")]
        await store.record(epoch=epoch, removed=[made], transitions=ended)
        assert (await store.rows.list(Workload)).items == []
        assert (await submit(store)).meta.uid != made.meta.uid

    async def test_objects_of_a_lost_database_get_entries(self, store: KubernetesLedger) -> None:
        made = await submit(store)
        await store.rows.withdraw(made.meta.uid)
        await store.begin_epoch()
        assert len(await store.transitions(workload_uid=made.meta.uid)) == 1
        await store.set_secrets(made.meta.uid, {"A": "1"})
