"""Devices that are not well: cordoned alone, their work begins elsewhere, and they come back."""

import msgspec

from carrel_scheduler.node.contract import DeviceLink, HealthCondition
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import DevicesSampled
from unit.workloads.desk import NODE, Desk
from unit.workloads.test_lost_gpus import on_device, shown

XID = HealthCondition(key="xid:79:5", severity="failed", message="Xid 79: fallen off the bus")
LATER = HealthCondition(key="xid:79:9", severity="failed", message="Xid 79: fallen off the bus")
ECC = HealthCondition(key="ecc:2", severity="failed", message="2 uncorrectable memory errors")
MORE_ECC = HealthCondition(key="ecc:3", severity="failed", message="3 uncorrectable memory errors")
SLOW = HealthCondition(key="throttle", severity="degraded", message="clocks are held down")


async def condition(desk: Desk, device: int, *found: HealthCondition) -> None:
    devices = list(desk.facts.devices)
    devices[device] = msgspec.structs.replace(devices[device], conditions=found)
    desk.facts = msgspec.structs.replace(desk.facts, devices=tuple(devices))
    desk.loop.enqueue(DevicesSampled(desk.facts, ()))
    await desk.settle()


async def test_work_on_a_sick_gpu_begins_elsewhere_and_counts_no_failure(desk: Desk) -> None:
    await desk.project("vision", 4)
    uids = [await desk.submit("vision", f"job-{number}") for number in range(3)]
    await desk.runs(*uids)
    task = on_device(desk, 1)
    await condition(desk, 1, XID)
    assert list(desk.engine.stopping) == [task]
    desk.finish(task, None, signal=15)
    await desk.settle()
    stored = await desk.stored(task.workload_uid)
    assert stored.status.failures == 0
    assert on_device(desk, 3).workload_uid == task.workload_uid, "the free one, not the sick one"
    device = shown(desk)[1]
    assert (device.broken, device.message) == (True, XID.message)
    assert [one.broken for one in shown(desk)] == [False, True, False, False]
    [decision] = [
        row
        for row in await desk.ledger.transitions(workload_uid=task.workload_uid)
        if row.to_phase == "pending" and row.from_phase
    ]
    assert decision.reason is not None
    assert "GPU 1 of desk was taken out of service (Xid 79" in decision.reason.sentence


async def test_a_gpu_that_failed_a_job_is_its_last_choice_when_it_is_well_again(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "job", gpus=2)
    await desk.runs(uid)
    assert on_device(desk, 1).workload_uid == uid
    await condition(desk, 1, SLOW)
    await condition(desk, 1)
    await desk.ends(uid, None, signal=15)
    status = (await desk.stored(uid)).status
    assert (status.failures, status.failed_devices) == (0, (f"{NODE}/1",))
    assert {on_device(desk, 0), on_device(desk, 2)} == set(desk.tasks_of(uid)), "not 1 again"


async def test_a_passing_check_returns_it_and_what_waits_starts_there(desk: Desk) -> None:
    await desk.project("vision", 4)
    await condition(desk, 0, SLOW)
    uid = await desk.submit("vision", "job", gpus=4)
    assert await desk.phase(uid) == "pending"
    await condition(desk, 0)
    assert await desk.phase(uid) == "starting"


async def test_an_admin_returns_it_until_there_is_new_trouble(desk: Desk) -> None:
    live = LiveState(desk.loop)
    await desk.project("vision", 4)
    assert not live.uncordon(NODE, 0)
    await condition(desk, 0, XID)
    uid = await desk.submit("vision", "job", gpus=4)
    assert live.uncordon(NODE, 0)
    await desk.settle()
    assert await desk.phase(uid) == "starting"
    await condition(desk, 0, XID)  # it is looked at again: the same trouble is known
    assert not shown(desk)[0].broken
    await condition(desk, 0, XID, LATER)
    assert shown(desk)[0].message == LATER.message
    assert desk.engine.stopping


async def test_a_restart_of_either_side_does_not_uncordon_a_gpu(desk: Desk) -> None:
    """An Xid is an event: whoever starts again has not heard of it."""
    await desk.project("vision", 4)
    await condition(desk, 0, XID)
    await condition(desk, 0)  # the agent started again
    assert shown(desk)[0].message == XID.message
    await desk.recover()
    assert shown(desk)[0].message == XID.message
    uid = await desk.submit("vision", "job", gpus=4)
    assert await desk.phase(uid) == "pending"
    assert LiveState(desk.loop).uncordon(NODE, 0)
    await desk.settle()
    assert await desk.phase(uid) == "starting"
    await desk.recover()
    assert not shown(desk)[0].broken


async def test_what_an_admin_acknowledged_is_known_after_a_restart(desk: Desk) -> None:
    await desk.project("vision", 4)
    await condition(desk, 0, ECC)
    assert LiveState(desk.loop).uncordon(NODE, 0)
    await desk.settle()
    await desk.recover()
    assert not shown(desk)[0].broken
    await condition(desk, 0, MORE_ECC)
    assert shown(desk)[0].message == MORE_ECC.message


async def test_an_acknowledged_xid_is_known_to_who_does_not_know_when_it_was(desk: Desk) -> None:
    """An agent that reads DCGM's gauge finds the last one there when it starts again."""
    await desk.project("vision", 4)
    await condition(desk, 0, XID)
    assert LiveState(desk.loop).uncordon(NODE, 0)
    undated = msgspec.structs.replace(XID, key=f"{XID.key.rpartition(':')[0]}:0")
    other = msgspec.structs.replace(XID, key="xid:48:0")
    for _ in range(2):
        await condition(desk, 0, undated)
        assert not shown(desk)[0].broken
    await condition(desk, 0, undated, other)
    assert shown(desk)[0].broken


async def test_a_cordon_that_cannot_be_read_is_set_aside(desk: Desk) -> None:
    await desk.project("vision", 4)
    await desk.ledger.put_setting("device_cordons", [{"node": 5}])
    await desk.recover()
    assert desk.loop.quarantine.counts
    uid = await desk.submit("vision", "job", gpus=4)
    assert await desk.phase(uid) == "starting"


async def test_a_workspace_stays_on_a_slow_gpu_and_stops_on_one_that_failed(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "room", kind="workspace", gpus=1)
    await desk.runs(uid)
    device = desk.tasks_of(uid)[0]
    (index,) = desk.engine.specs[device].devices
    await condition(desk, index, SLOW)
    assert await desk.phase(uid) == "running"
    await condition(desk, index, XID)
    await desk.ends(uid, None, signal=15)
    reason = (await desk.stored(uid)).status.reason
    assert reason is not None
    assert reason.sentence.startswith(f"Stopped: GPU {index} of desk was taken out of service")


async def test_links_of_a_node_reach_the_decisions_and_people(desk: Desk) -> None:
    """Of four GPUs, 1 and 3 are linked: a pair gets those."""
    desk.facts = msgspec.structs.replace(desk.facts, links=(DeviceLink(1, 3, 0),))
    desk.loop.enqueue(DevicesSampled(desk.facts, ()))
    await desk.settle()
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "pair", gpus=2)
    assert desk.engine.specs[desk.tasks_of(uid)[0]].devices == (1, 3)
    [node] = LiveState(desk.loop).nodes()
    assert [(link.first, link.second, link.hops) for link in node.links] == [(1, 3, 0)]
