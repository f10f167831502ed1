"""Logs of studies: appended without a gap, by the present scheduler only, gone with their owner."""

import asyncio

import pytest

from carrel_scheduler.ledger.records import Fenced, Ledger
from carrel_scheduler.ledger.store import ObjectNotFound, VersionConflict
from carrel_schema.objects import Workload
from contract.ledger.ledger_tools import Ledgers, submit


class StudyLogs:
    """``append_study`` and ``study``."""

    async def test_entries_come_back_in_their_order(self, store: Ledger, stores: Ledgers) -> None:
        epoch, uid = await store.begin_epoch(), (await submit(store)).meta.uid
        other = (await submit(store, "other")).meta.uid
        assert await store.study(uid) == []
        await store.append_study(uid, ['{"a":1}', "ü"], first=0, epoch=epoch)
        await store.append_study(other, ["z"], first=0, epoch=epoch)
        await store.append_study(uid, ["c"], first=2, epoch=epoch)
        again = await stores.open()
        assert list(await again.study(uid)) == ['{"a":1}', "ü", "c"]
        assert list(await again.study(uid, first=1, limit=1)) == ["ü"]
        assert list(await again.study(uid, first=3)) == []

    async def test_who_does_not_know_the_end_is_refused(self, store: Ledger) -> None:
        epoch, uid = await store.begin_epoch(), (await submit(store)).meta.uid
        writes = (store.append_study(uid, [f"{n}"], first=0, epoch=epoch) for n in range(4))
        ends = await asyncio.gather(*writes, return_exceptions=True)
        assert sum(isinstance(end, VersionConflict) for end in ends) == 3
        with pytest.raises(VersionConflict):
            await store.append_study(uid, ["x"], first=2, epoch=epoch)
        assert len(await store.study(uid)) == 1

    async def test_an_older_scheduler_is_refused(self, store: Ledger) -> None:
        old, uid = await store.begin_epoch(), (await submit(store)).meta.uid
        await store.begin_epoch()
        with pytest.raises(Fenced):
            await store.append_study(uid, ["x"], first=0, epoch=old)
        assert await store.study(uid) == []

    async def test_it_goes_with_its_owner(self, store: Ledger) -> None:
        epoch, made = await store.begin_epoch(), await submit(store)
        await store.append_study(made.meta.uid, ["x"], first=0, epoch=epoch)
        await store.delete(Workload, made.meta.name, made.meta.project)
        assert await store.study(made.meta.uid) == []
        with pytest.raises(ObjectNotFound):
            await store.append_study(made.meta.uid, ["x"], first=0, epoch=epoch)
