"""The audit log of a ledger: what is recorded, that it holds, and that changes to it are seen."""

import asyncio

import msgspec
import pytest

from carrel_scheduler.ledger.audit.actor import Actor, acting
from carrel_scheduler.ledger.audit.contract import AuditFilter
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.ledger.store import ObjectExists
from carrel_schema.governance.audit import AuditEntry
from carrel_schema.objects import Workload
from carrel_schema.scopes import PLATFORM
from contract.ledger.ledger_tools import DAY, NOW, Ledgers, submit

ALL = AuditFilter()


def grace(at: float = NOW) -> Actor:
    return Actor(at=at, user="grace", address="10.0.0.7", channel="cli")


def entry(name: str, at: float = NOW, user: str = "root") -> AuditEntry:
    return AuditEntry(at=at, user=user, verb="sign-in", kind="User", name=name)


class AuditLog:
    """``Ledger.audit``."""

    async def test_changes_of_an_actor_are_recorded_and_those_of_the_scheduler_are_not(
        self, store: Ledger
    ) -> None:
        await submit(store, "by-itself")
        with acting(grace()):
            made = await submit(store, "job", TOKEN="hunter2")
            made.spec.environment = {"PASSWORD": "hunter2", "LEVEL": "3"}
            made.spec.image = "torch:2"
            await store.update(made)
            await store.delete(Workload, "job", made.meta.project)
        newest = await store.audit.read(ALL)
        assert [(one.seq, one.verb, one.name) for one in newest] == [
            (3, "delete", "job"),
            (2, "update", "job"),
            (1, "create", "job"),
        ]
        changed = newest[1]
        assert (changed.user, changed.address, changed.channel) == ("grace", "10.0.0.7", "cli")
        assert (changed.kind, changed.scope) == ("Workload", f"project/{made.meta.project}")
        assert changed.uid == made.meta.uid
        assert changed.after["image"] == "torch:2" != changed.before["image"]
        assert set(changed.after) == {"image", "environment.PASSWORD", "environment.LEVEL"}
        assert b"hunter2" not in msgspec.json.encode(newest)

    async def test_a_call_that_fails_leaves_no_entry(self, store: Ledger) -> None:
        with acting(grace()):
            await submit(store, "job")
            with pytest.raises(ObjectExists):
                await submit(store, "job")
        assert len(await store.audit.read(ALL)) == 1
        assert (await store.audit.verify()).ok

    async def test_documents_in_scopes_are_recorded(self, store: Ledger) -> None:
        content = msgspec.Raw(b'{"gpus": 1, "api_key": "hunter2"}')
        record = ScopedRecord(kind="policy", scope=PLATFORM, name="small", content=content)
        with acting(grace()):
            await store.scoped.put(record, actor="grace")
            fresh = msgspec.structs.replace(record, content=msgspec.Raw(b'{"gpus": 2}'))
            await store.scoped.put(fresh, actor="grace")
            await store.scoped.remove("policy", PLATFORM, "small")
        removed, changed, made = await store.audit.read(AuditFilter(kind="policy"))
        assert made.after == {"api_key": "(hidden)", "gpus": 1}
        assert (changed.before, changed.after) == ({"api_key": "(hidden)", "gpus": 1}, {"gpus": 2})
        assert (removed.verb, removed.before) == ("delete", {"gpus": 2})

    async def test_many_writers_make_one_chain(self, store: Ledger, stores: Ledgers) -> None:
        other = await stores.open()

        async def write(ledger: Ledger, number: int) -> None:
            with acting(grace()):
                await submit(ledger, f"job-{number}")

        await asyncio.gather(*(write((store, other)[n % 2], n) for n in range(60)))
        found = await store.audit.verify()
        assert (found.ok, found.entries, found.head.seq) == (True, 60, 60)
        names = {one.name for one in await store.audit.read(ALL, limit=500)}
        assert names == {f"job-{number}" for number in range(60)}

    async def test_what_is_asked_for_is_found_page_by_page(self, store: Ledger) -> None:
        people = ("ada", "grace")
        entries = [entry(f"n{n}", NOW + n, people[n % 2]) for n in range(9)]
        await store.audit.add(entries)
        first = await store.audit.read(AuditFilter(user="ada"), limit=3)
        second = await store.audit.read(AuditFilter(user="ada"), before=first[-1].seq, limit=3)
        assert [one.name for one in (*first, *second)] == ["n8", "n6", "n4", "n2", "n0"]
        between = AuditFilter(since=NOW + 3, until=NOW + 5)
        assert [one.name for one in await store.audit.read(between, after=0)] == ["n3", "n4"]
        assert not await store.audit.read(AuditFilter(scopes=()))

    async def test_old_entries_go_and_the_rest_holds_from_its_anchor(self, store: Ledger) -> None:
        await store.audit.add([entry(f"n{n}", NOW + n * DAY) for n in range(10)])
        note = AuditEntry(at=NOW + 10 * DAY, user="scheduler", verb="prune", kind="AuditLog")
        assert await store.audit.prune(NOW + 4 * DAY, note) == 4
        assert await store.audit.prune(NOW + 4 * DAY, note) == 0
        newest, *others = await store.audit.read(ALL)
        assert [one.name for one in others] == [f"n{n}" for n in range(9, 3, -1)]
        assert newest.after["removed_through"] == 4
        found = await store.audit.verify()
        assert (found.ok, found.entries, found.head.anchor_seq) == (True, 7, 4)
        await store.audit.add([entry("later", NOW + 11 * DAY)])
        assert (await store.audit.verify()).ok
