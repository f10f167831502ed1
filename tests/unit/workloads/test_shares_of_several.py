"""A share of each of several GPUs: placed on one node, counted as a whole, told to the task."""

from carrel_schema.objects import Resources
from carrel_schema.sections import Rendezvous
from unit.workloads.harness import SchedulerHarness

PAIR = Resources(gpu_milli=250, gpu_devices=2, cpu_milli=100, memory_bytes=1 << 20)


async def test_it_takes_the_same_share_of_different_gpus(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "pair", resources=PAIR)
    whole = await harness.submit("vision", "other", 3)
    await harness.runs(uid)
    (spec,) = [one for one in harness.engine.specs.values() if one.id.workload_uid == uid]
    assert len(set(spec.devices)) == 2
    assert spec.gpu_milli == 250
    assert spec.gpu_memory_mib == 6_000
    assert await harness.phase(whole) == "pending", "two of four GPUs are shared"


async def test_it_counts_as_all_its_shares_together(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "pair", resources=PAIR)
    await harness.runs(uid)
    rows = [one for one in await harness.ledger.transitions(workload_uid=uid) if one.gpu_milli]
    assert {one.gpu_milli for one in rows} == {500}


async def test_its_processes_have_a_gpu_each(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    gang = Rendezvous()
    uid = await harness.submit(
        "vision", "gang", kind="distributed", tasks=2, rendezvous=gang, resources=PAIR
    )
    specs = [one for one in harness.engine.specs.values() if one.id.workload_uid == uid]
    assert {one.environment["PET_NPROC_PER_NODE"] for one in specs} == {"2"}
