"""Scoped records: versions, scopes, what is refused."""

import msgspec
import pytest

from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.ledger.store import ObjectExists, ObjectNotFound, VersionConflict
from carrel_schema.scopes import PLATFORM, Scope
from contract.ledger.ledger_tools import Ledgers

VISION = Scope("project", "vision")
LAB = Scope("department", "lab")


def record(name: str, scope: Scope = PLATFORM, kind: str = "policy", gpus: int = 1) -> ScopedRecord:
    content = msgspec.Raw(msgspec.json.encode({"gpus": gpus}))
    return ScopedRecord(kind=kind, scope=scope, name=name, content=content)


class ScopedRecordsRules:
    """``Ledger.scoped``."""

    async def test_a_record_is_kept_and_counts_its_changes(
        self, store: Ledger, stores: Ledgers
    ) -> None:
        made = await store.scoped.put(record("small"), actor="root")
        changed = await store.scoped.put(record("small", gpus=4), actor="grace")
        assert (made.version, changed.version) == (1, 2)
        assert (changed.created_by, changed.changed_by) == ("root", "grace")
        assert changed.created_at == made.created_at <= changed.changed_at
        again = await stores.open()
        found = await again.scoped.get("policy", PLATFORM, "small")
        assert found == changed
        assert msgspec.json.decode(found.content) == {"gpus": 4}

    async def test_a_version_that_is_not_the_stored_one_is_refused(self, store: Ledger) -> None:
        await store.scoped.put(record("small"), actor="root", expected_version=0)
        with pytest.raises(ObjectExists):
            await store.scoped.put(record("small", gpus=2), actor="eve", expected_version=0)
        with pytest.raises(VersionConflict):
            await store.scoped.put(record("small", gpus=2), actor="eve", expected_version=2)
        with pytest.raises(ObjectNotFound):
            await store.scoped.put(record("none"), actor="eve", expected_version=1)
        with pytest.raises(VersionConflict):
            await store.scoped.remove("policy", PLATFORM, "small", expected_version=7)
        found = await store.scoped.get("policy", PLATFORM, "small")
        assert (found.version, found.changed_by) == (1, "root")

    async def test_lists_are_in_order_from_the_widest_scope_to_the_narrowest(
        self, store: Ledger
    ) -> None:
        for name, scope in (("b", VISION), ("a", VISION), ("z", PLATFORM), ("m", LAB)):
            await store.scoped.put(record(name, scope), actor="root")
        await store.scoped.put(record("other", kind="template"), actor="root")
        names = [one.name for one in await store.scoped.list("policy")]
        assert names == ["z", "m", "a", "b"]
        some = await store.scoped.list("policy", scopes=(PLATFORM, VISION))
        assert [one.name for one in some] == ["z", "a", "b"]
        assert not await store.scoped.list("policy", scopes=())

    async def test_removing_one_and_all_of_a_scope(self, store: Ledger) -> None:
        for name, scope in (("a", VISION), ("b", VISION), ("a", LAB)):
            await store.scoped.put(record(name, scope), actor="root")
        await store.scoped.put(record("t", VISION, "template"), actor="root")
        assert (await store.scoped.remove("policy", VISION, "a")).name == "a"
        with pytest.raises(ObjectNotFound):
            await store.scoped.remove("policy", VISION, "a")
        gone = await store.scoped.remove_scope(VISION)
        assert [(one.kind, one.name) for one in gone] == [("policy", "b"), ("template", "t")]
        assert [one.scope for one in await store.scoped.list("policy")] == [LAB]
