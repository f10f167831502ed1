"""Devices that are not well: cordoned alone, their work begins elsewhere, and they come back."""

import msgspec

from carrel_scheduler.node.contract import DeviceLink, HealthCondition
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import DevicesSampled
from unit.workloads.harness import NODE, SchedulerHarness, devices_of, on_device

XID = HealthCondition(key="xid:79:5", severity="failed", message="Xid 79: fallen off the bus")
LATER = HealthCondition(key="xid:79:9", severity="failed", message="Xid 79: fallen off the bus")
ECC = HealthCondition(key="ecc:2", severity="failed", message="2 uncorrectable memory errors")
MORE_ECC = HealthCondition(key="ecc:3", severity="failed", message="3 uncorrectable memory errors")
SLOW = HealthCondition(key="throttle", severity="degraded", message="clocks are held down")


async def condition(harness: SchedulerHarness, device: int, *found: HealthCondition) -> None:
    devices = list(harness.facts.devices)
    devices[device] = msgspec.structs.replace(devices[device], conditions=found)
    harness.facts = msgspec.structs.replace(harness.facts, devices=tuple(devices))
    harness.loop.enqueue(DevicesSampled(harness.facts, ()))
    await harness.settle()


async def test_work_on_a_sick_gpu_begins_elsewhere_and_counts_no_failure(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uids = [await harness.submit("vision", f"job-{number}") for number in range(3)]
    await harness.runs(*uids)
    task = on_device(harness, 1)
    await condition(harness, 1, XID)
    assert list(harness.engine.stopping) == [task]
    harness.finish(task, None, signal=15)
    await harness.settle()
    stored = await harness.stored(task.workload_uid)
    assert stored.status.failures == 0
    assert on_device(harness, 3).workload_uid == task.workload_uid, "the free one, not the sick one"
    device = devices_of(harness)[1]
    assert (device.broken, device.message) == (True, XID.message)
    assert [one.broken for one in devices_of(harness)] == [False, True, False, False]
    [decision] = [
        row
        for row in await harness.ledger.transitions(workload_uid=task.workload_uid)
        if row.to_phase == "pending" and row.from_phase
    ]
    assert decision.reason is not None
    assert "GPU 1 of desk was taken out of service (Xid 79" in decision.reason.sentence


async def test_a_gpu_that_failed_a_job_is_its_last_choice_when_it_is_well_again(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "job", gpus=2)
    await harness.runs(uid)
    assert on_device(harness, 1).workload_uid == uid
    await condition(harness, 1, SLOW)
    await condition(harness, 1)
    await harness.ends(uid, None, signal=15)
    status = (await harness.stored(uid)).status
    assert (status.failures, status.failed_devices) == (0, (f"{NODE}/1",))
    assert {on_device(harness, 0), on_device(harness, 2)} == set(harness.tasks_of(uid)), (
        "not 1 again"
    )


async def test_a_passing_check_returns_it_and_what_waits_starts_there(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    await condition(harness, 0, SLOW)
    uid = await harness.submit("vision", "job", gpus=4)
    assert await harness.phase(uid) == "pending"
    await condition(harness, 0)
    assert await harness.phase(uid) == "starting"


async def test_an_admin_returns_it_until_there_is_new_trouble(harness: SchedulerHarness) -> None:
    live = LiveState(harness.loop)
    await harness.project("vision", 4)
    assert not live.uncordon(NODE, 0)
    await condition(harness, 0, XID)
    uid = await harness.submit("vision", "job", gpus=4)
    assert live.uncordon(NODE, 0)
    await harness.settle()
    assert await harness.phase(uid) == "starting"
    await condition(harness, 0, XID)  # it is looked at again: the same trouble is known
    assert not devices_of(harness)[0].broken
    await condition(harness, 0, XID, LATER)
    assert devices_of(harness)[0].message == LATER.message
    assert harness.engine.stopping


async def test_a_restart_of_either_side_does_not_uncordon_a_gpu(harness: SchedulerHarness) -> None:
    """An Xid is an event: whoever starts again has not heard of it."""
    await harness.project("vision", 4)
    await condition(harness, 0, XID)
    await condition(harness, 0)  # the agent started again
    assert devices_of(harness)[0].message == XID.message
    await harness.recover()
    assert devices_of(harness)[0].message == XID.message
    uid = await harness.submit("vision", "job", gpus=4)
    assert await harness.phase(uid) == "pending"
    assert LiveState(harness.loop).uncordon(NODE, 0)
    await harness.settle()
    assert await harness.phase(uid) == "starting"
    await harness.recover()
    assert not devices_of(harness)[0].broken


async def test_what_an_admin_acknowledged_is_known_after_a_restart(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    await condition(harness, 0, ECC)
    assert LiveState(harness.loop).uncordon(NODE, 0)
    await harness.settle()
    await harness.recover()
    assert not devices_of(harness)[0].broken
    await condition(harness, 0, MORE_ECC)
    assert devices_of(harness)[0].message == MORE_ECC.message


async def test_an_acknowledged_xid_is_known_to_who_does_not_know_when_it_was(
    harness: SchedulerHarness,
) -> None:
    """An agent that reads DCGM's gauge finds the last one there when it starts again."""
    await harness.project("vision", 4)
    await condition(harness, 0, XID)
    assert LiveState(harness.loop).uncordon(NODE, 0)
    undated = msgspec.structs.replace(XID, key=f"{XID.key.rpartition(':')[0]}:0")
    other = msgspec.structs.replace(XID, key="xid:48:0")
    for _ in range(2):
        await condition(harness, 0, undated)
        assert not devices_of(harness)[0].broken
    await condition(harness, 0, undated, other)
    assert devices_of(harness)[0].broken


async def test_a_cordon_that_cannot_be_read_is_set_aside(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    await harness.ledger.put_setting("device_cordons", [{"node": 5}])
    await harness.recover()
    assert harness.loop.quarantine.counts
    uid = await harness.submit("vision", "job", gpus=4)
    assert await harness.phase(uid) == "starting"


async def test_a_workspace_stays_on_a_slow_gpu_and_stops_on_one_that_failed(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "room", kind="workspace", gpus=1)
    await harness.runs(uid)
    device = harness.tasks_of(uid)[0]
    (index,) = harness.engine.specs[device].devices
    await condition(harness, index, SLOW)
    assert await harness.phase(uid) == "running"
    await condition(harness, index, XID)
    await harness.ends(uid, None, signal=15)
    reason = (await harness.stored(uid)).status.reason
    assert reason is not None
    assert reason.sentence.startswith(f"Stopped: GPU {index} of desk was taken out of service")


async def test_links_of_a_node_reach_the_decisions_and_people(harness: SchedulerHarness) -> None:
    """Of four GPUs, 1 and 3 are linked: a pair gets those."""
    harness.facts = msgspec.structs.replace(harness.facts, links=(DeviceLink(1, 3, 0),))
    harness.loop.enqueue(DevicesSampled(harness.facts, ()))
    await harness.settle()
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "pair", gpus=2)
    assert harness.engine.specs[harness.tasks_of(uid)[0]].devices == (1, 3)
    [node] = LiveState(harness.loop).nodes()
    assert [(link.first, link.second, link.hops) for link in node.links] == [(1, 3, 0)]
