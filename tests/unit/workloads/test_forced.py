"""Work whose object somebody removed by force: its tasks end, the scheduler goes on."""

from typing import Any

import pytest

from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.state.events import StatusChanged, WorkloadChanged
from carrel_schema.objects import Workload
from unit.workloads.harness import SchedulerHarness


@pytest.fixture
async def forced(harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch) -> SchedulerHarness:
    """A ledger for which what is gone has been let go, as a cluster's is."""
    record = harness.ledger.record

    async def tolerant(*, removed: Any = (), **rest: Any) -> Any:
        there = {one.meta.uid for one in (await harness.ledger.list(Workload)).items}
        return await record(removed=[one for one in removed if one.meta.uid in there], **rest)

    monkeypatch.setattr(harness.ledger, "record", tolerant)
    await harness.project("vision", 4)
    return harness


async def take_away(harness: SchedulerHarness, name: str) -> Workload:
    return await harness.ledger.delete(Workload, name, "vision")


async def hear(harness: SchedulerHarness, workload: Workload) -> None:
    version = workload.meta.resource_version
    harness.loop.enqueue(WorkloadChanged(Change(ChangeType.DELETED, version, workload)))
    await harness.settle()


async def test_its_tasks_are_ended_and_it_is_forgotten(forced: SchedulerHarness) -> None:
    uid = await forced.submit("vision", "job")
    waits = await forced.submit("vision", "waits", gpus=4)
    await forced.runs(uid)
    (task,) = forced.tasks_of(uid)
    await hear(forced, await take_away(forced, "job"))
    assert task in forced.engine.stopping
    await forced.ends(uid, None, signal=15)
    assert forced.loop.cache.get(uid) is None
    assert forced.engine.removed == [uid]
    assert await forced.phase(waits) == "starting"
    last = (await forced.ledger.transitions(workload_uid=uid))[-1]
    assert (last.to_phase, last.gpu_milli) == ("stopped", 0)


async def test_a_write_that_finds_nothing_is_no_end_of_the_scheduler(
    forced: SchedulerHarness,
) -> None:
    uid = await forced.submit("vision", "job")
    other = await forced.submit("vision", "other")
    await forced.runs(other)
    gone = await take_away(forced, "job")
    forced.loop.enqueue(StatusChanged(other))
    await forced.runs(uid)  # its status is to be written, and there is nothing to write on
    assert forced.engine.stopping.keys() == set(forced.tasks_of(uid))
    await hear(forced, gone)
    await forced.ends(uid, None, signal=15)
    assert forced.loop.cache.get(uid) is None
    assert await forced.phase(other) == "running"


async def test_what_waits_is_forgotten_at_once(forced: SchedulerHarness) -> None:
    await forced.submit("vision", "first", gpus=4)
    uid = await forced.submit("vision", "second", gpus=4)
    await hear(forced, await take_away(forced, "second"))
    assert forced.loop.cache.get(uid) is None
