"""Every row of the past says where what is held is: GPU types and groups of nodes."""

from carrel_scheduler.node.contract import DeviceUse
from carrel_scheduler.workloads.state.events import DevicesSampled
from carrel_schema.history import PlaceUse, Usage
from unit.workloads.desk import Desk


async def lines(desk: Desk, by: str) -> dict[str, Usage]:
    """Use since the beginning."""
    found = await desk.ledger.usage(by=by, since=0.0, until=desk.now)
    return {one.key: one for one in found}


async def test_use_counts_for_the_type_of_the_gpus_and_their_group(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "job", 2)
    await desk.runs(uid)
    busy = DeviceUse(index=0, utilization=0.5, memory_used_mib=10)
    idle = DeviceUse(index=1, utilization=0.5, memory_used_mib=10)
    for _ in range(20):
        desk.loop.enqueue(DevicesSampled(desk.facts, (busy, idle)))
        await desk.settle()
        await desk.wait(30.0)
    rows = await desk.ledger.transitions(workload_uid=uid)
    held = PlaceUse(
        gpu_type="A10", node_group="a10", gpu_milli=2000, cpu_milli=100, memory_bytes=1 << 20
    )
    assert [one.places for one in rows if one.to_phase == "running"] == [(held,)]
    assert [one.places for one in rows if one.to_phase == "pending"] == [()]
    types, groups = await lines(desk, "gpu-type"), await lines(desk, "node-group")
    assert types["A10"].gpu_seconds == groups["a10"].gpu_seconds > 1000
    assert types["A10"].gpu_used_seconds == groups["a10"].gpu_used_seconds > 100
    assert (await lines(desk, "kind"))["training"].gpu_used_seconds == types["A10"].gpu_used_seconds
    await desk.ends(uid)
    (last,) = (await desk.ledger.transitions(workload_uid=uid))[-1:]
    assert (last.to_phase, last.places) == ("succeeded", ())
