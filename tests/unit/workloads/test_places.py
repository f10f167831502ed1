"""Every row of the past says where what is held is: GPU types and groups of nodes."""

from carrel_scheduler.node.contract import DeviceUse
from carrel_scheduler.workloads.state.events import DevicesSampled
from carrel_schema.history import PlaceUse, Usage
from unit.workloads.harness import SchedulerHarness


async def lines(harness: SchedulerHarness, by: str) -> dict[str, Usage]:
    """Use since the beginning."""
    found = await harness.ledger.usage(by=by, since=0.0, until=harness.now)
    return {one.key: one for one in found}


async def test_use_counts_for_the_type_of_the_gpus_and_their_group(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "job", 2)
    await harness.runs(uid)
    busy = DeviceUse(index=0, utilization=0.5, memory_used_mib=10)
    idle = DeviceUse(index=1, utilization=0.5, memory_used_mib=10)
    for _ in range(20):
        harness.loop.enqueue(DevicesSampled(harness.facts, (busy, idle)))
        await harness.settle()
        await harness.wait(30.0)
    rows = await harness.ledger.transitions(workload_uid=uid)
    held = PlaceUse(
        gpu_type="A10", node_group="a10", gpu_milli=2000, cpu_milli=100, memory_bytes=1 << 20
    )
    assert [one.places for one in rows if one.to_phase == "running"] == [(held,)]
    assert [one.places for one in rows if one.to_phase == "pending"] == [()]
    types, groups = await lines(harness, "gpu-type"), await lines(harness, "node-group")
    assert types["A10"].gpu_seconds == groups["a10"].gpu_seconds > 1000
    assert types["A10"].gpu_used_seconds == groups["a10"].gpu_used_seconds > 100
    assert (await lines(harness, "kind"))["training"].gpu_used_seconds == types[
        "A10"
    ].gpu_used_seconds
    await harness.ends(uid)
    (last,) = (await harness.ledger.transitions(workload_uid=uid))[-1:]
    assert (last.to_phase, last.places) == ("succeeded", ())
