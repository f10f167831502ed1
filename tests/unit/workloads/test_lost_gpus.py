"""GPUs that go away: shown as lost, the work that was on them runs again, the rest goes on."""

import msgspec
import pytest

from carrel_scheduler.engines.core_state import keep_node
from carrel_scheduler.node.contract import Device, DeviceUse, NodeFacts
from carrel_scheduler.workloads.nodes.device_records import (
    NOT_SHOWN,
    DeviceRecords,
    moved_places,
    with_lost,
)
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import DevicesSampled
from carrel_schema.sections import Retries
from unit.workloads.harness import NODE, SchedulerHarness, devices_of, node_facts, on_device


async def test_after_a_restart_with_fewer_gpus_work_goes_on_with_those(
    harness: SchedulerHarness,
) -> None:
    """4 GPUs in use, 2 after the restart."""
    await harness.project("vision", 4)
    uids = [await harness.submit("vision", f"job-{number}") for number in range(4)]
    await harness.runs(*uids)
    stays = [on_device(harness, 0), on_device(harness, 1)]
    lost = [on_device(harness, 2), on_device(harness, 3)]
    harness.facts = node_facts(2)
    await harness.recover()
    assert [device.broken for device in devices_of(harness)] == [False, False, True, True]
    assert devices_of(harness)[3].message == NOT_SHOWN
    [view] = LiveState(harness.loop).nodes()
    assert (view.gpu_milli, view.gpu_allocated_milli) == (2000, 2000)
    assert set(harness.engine.stopping) == set(lost)
    assert await harness.phases(*(task.workload_uid for task in stays)) == ["running"] * 2
    for task in lost:
        harness.finish(task, None, signal=15)
    await harness.settle()
    for task in lost:
        stored = await harness.stored(task.workload_uid)
        assert (stored.status.phase, stored.status.failures) == ("pending", 0)
    harness.finish(stays[0])
    await harness.wait(60.0)
    phases = sorted(await harness.phases(*(task.workload_uid for task in lost)))
    assert phases == ["pending", "starting"]
    assert on_device(harness, 0).workload_uid in {task.workload_uid for task in lost}


async def test_a_gpu_that_vanishes_takes_only_its_own_work_with_it(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uids = [await harness.submit("vision", f"job-{number}") for number in range(4)]
    await harness.runs(*uids)
    task = on_device(harness, 3)
    harness.loop.enqueue(DevicesSampled(node_facts(3), ()))
    await harness.settle()
    assert list(harness.engine.stopping) == [task]
    assert devices_of(harness)[3].broken
    harness.finish(task, 1)
    await harness.settle()
    stored = await harness.stored(task.workload_uid)
    assert (stored.status.phase, stored.status.failures) == ("pending", 0)
    reason = stored.status.reason
    assert reason is not None
    harness.loop.enqueue(DevicesSampled(node_facts(4), ()))  # it is back
    await harness.wait(60.0)
    assert not devices_of(harness)[3].broken
    assert await harness.phase(task.workload_uid) == "starting"


async def test_a_workspace_on_a_lost_gpu_stops_and_says_so(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "room", kind="workspace", gpus=4)
    await harness.runs(uid)
    harness.loop.enqueue(DevicesSampled(node_facts(2), ()))
    await harness.settle()
    await harness.ends(uid, None, signal=15)
    stored = await harness.stored(uid)
    assert stored.status.phase == "stopped"
    assert stored.status.reason is not None
    assert stored.status.reason.sentence == "Stopped: GPUs 2, 3 of desk were lost."


async def test_a_gang_on_a_lost_gpu_starts_again_together(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "gang", kind="distributed", tasks=3)
    await harness.runs(uid)
    harness.loop.enqueue(DevicesSampled(node_facts(2), ()))
    await harness.settle()
    assert len(harness.engine.stopping) == 3
    await harness.ends(uid, None, signal=15)
    stored = await harness.stored(uid)
    assert (stored.status.phase, stored.status.failures) == ("pending", 0)


async def test_a_job_that_may_lose_no_gpu_fails(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "job", gpus=4, retries=Retries(gpu=0))
    await harness.runs(uid)
    harness.loop.enqueue(DevicesSampled(node_facts(2), ()))
    await harness.settle()
    await harness.ends(uid, None, signal=15)
    status = (await harness.stored(uid)).status
    assert status.phase == "failed"
    assert status.reason is not None
    assert status.reason.sentence == "Failed: its process was lost (GPUs 2, 3 of desk were lost)."


async def test_a_device_that_says_it_is_lost_counts_as_lost(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "job", gpus=4)
    await harness.runs(uid)
    devices = list(harness.facts.devices)
    devices[1] = msgspec.structs.replace(devices[1], broken=True, message="ECC error")
    harness.loop.enqueue(
        DevicesSampled(msgspec.structs.replace(harness.facts, devices=tuple(devices)), ())
    )
    await harness.settle()
    assert not harness.engine.stopping  # broken: nothing new starts there, what runs goes on
    devices[1] = msgspec.structs.replace(devices[1], lost=True, message="GPU is lost")
    harness.loop.enqueue(
        DevicesSampled(msgspec.structs.replace(harness.facts, devices=tuple(devices)), ())
    )
    await harness.settle()
    assert len(harness.engine.stopping) == 1


async def test_a_node_that_only_the_core_knows_is_shown_as_lost(harness: SchedulerHarness) -> None:
    keep_node(harness.loop.state, "gone", (0, 2))
    [node] = [one for one in LiveState(harness.loop).nodes() if one.name == "gone"]
    assert node.status == "lost"
    assert [device.broken for device in node.devices] == [True, True, True]
    await harness.project("vision", 4)  # quotas ask for the nodes, too


async def test_devices_keep_their_places_when_the_driver_counts_anew(
    harness: SchedulerHarness,
) -> None:
    """GPU 1 falls off, and what was GPU 2 and 3 is told of as 1 and 2."""
    named = [msgspec.structs.replace(one, uuid=f"u{one.index}") for one in harness.facts.devices]
    harness.loop.enqueue(
        DevicesSampled(msgspec.structs.replace(harness.facts, devices=tuple(named)), ())
    )
    await harness.project("vision", 4)
    uids = [await harness.submit("vision", f"job-{number}") for number in range(4)]
    await harness.runs(*uids)
    task, works = on_device(harness, 1), on_device(harness, 3)
    fewer = tuple(
        msgspec.structs.replace(named[old], index=new) for new, old in enumerate((0, 2, 3))
    )
    use = tuple(
        DeviceUse(index=i, utilization=1.0 if i == 2 else 0.0, memory_used_mib=0) for i in range(3)
    )
    harness.loop.enqueue(DevicesSampled(msgspec.structs.replace(harness.facts, devices=fewer), use))
    await harness.settle()
    assert list(harness.engine.stopping) == [task]
    assert [(one.uuid, one.broken) for one in devices_of(harness)] == [
        ("u0", False),
        ("u1", True),
        ("u2", False),
        ("u3", False),
    ]
    entry = harness.loop.cache.get(works.workload_uid)
    assert entry is not None
    assert entry.gpu_active_at == harness.now


def node(*devices: int) -> NodeFacts:
    found = tuple(
        Device(index=i, uuid=f"u{i}", name="A10", memory_mib=24, simulated=False) for i in devices
    )
    return NodeFacts(name="n", cpu_milli=1, memory_mib=1, devices=found, simulated=False)


@pytest.mark.parametrize(
    ("before", "now", "held", "lost"),
    [
        (None, (0, 1), (), []),
        (None, (0, 1), (1,), []),
        (None, (0, 1), (3,), [2, 3]),
        ((0, 1, 2), (0, 1), (), [2]),
        ((0, 1, 2), (0, 2), (), [1]),
        ((0, 1), (), (), [0, 1]),
        (None, (), (0,), [0]),
    ],
)
def test_what_is_missing_is_added_as_lost(
    before: tuple[int, ...] | None, now: tuple[int, ...], held: tuple[int, ...], lost: list[int]
) -> None:
    found = with_lost(None if before is None else node(*before), node(*now), held)
    assert [device.index for device in found.devices] == list(range(len(found.devices)))
    assert [device.index for device in found.devices if device.lost] == lost


def test_a_gpu_that_nobody_saw_is_not_remembered() -> None:
    """It is listed for as long as work holds its index, and no longer after a restart."""
    known = DeviceRecords()
    known.see(with_lost(None, node(0, 1), (3,)))
    assert [one.index for one in known.record()["n"]] == [0, 1]
    known.see(with_lost(node(0, 1, 2), node(0, 1), ()))
    assert [one.index for one in known.record()["n"]] == [0, 1, 2]


@pytest.mark.parametrize("known", [True, False])
async def test_live_work_keeps_its_gpu_when_the_driver_counts_anew_over_a_restart(
    harness: SchedulerHarness, *, known: bool
) -> None:
    """GPU 1 falls off while nobody looks: what was GPU 3 is told of as GPU 2."""
    named = [
        msgspec.structs.replace(one, uuid=f"u{one.index}", simulated=False)
        for one in harness.facts.devices
    ]
    harness.facts = msgspec.structs.replace(harness.facts, devices=tuple(named), simulated=False)
    await harness.recover()
    await harness.project("vision", 4)
    uids = [await harness.submit("vision", f"job-{number}") for number in range(4)]
    await harness.runs(*uids)
    works = on_device(harness, 3)
    ends = [one for one in harness.engine.alive if one != works]
    for task in ends:
        harness.finish(task, 0)
    await harness.settle()
    fewer = [msgspec.structs.replace(named[old], index=new) for new, old in enumerate((0, 2, 3))]
    harness.facts = msgspec.structs.replace(harness.facts, devices=tuple(fewer))
    if not known:
        harness.finish(works, 0)
        await harness.settle()
    await harness.recover()
    if not known:
        assert [one.uuid for one in devices_of(harness)] == ["u0", "u2", "u3"], (
            "nobody knows the old ones"
        )
        return
    assert [(one.uuid, one.broken) for one in devices_of(harness)] == [
        ("u0", False),
        ("u1", True),
        ("u2", False),
        ("u3", False),
    ]
    more = await harness.submit("vision", "more", gpus=2)
    assert harness.engine.specs[harness.tasks_of(more)[0]].device_uuids == ("u0", "u2")
    assert await harness.phase(works.workload_uid) == "running"


async def test_a_record_of_devices_that_cannot_be_read_is_set_aside(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "job", gpus=4)
    await harness.ledger.put_setting("known_devices", {NODE: 5})
    await harness.recover()
    assert harness.loop.quarantine.counts
    assert await harness.phase(uid) == "starting"


@pytest.mark.parametrize(
    ("before", "now", "held", "places"),
    [
        ("abc", "abc", (), "abc"),
        ("abc", "ac", (), "a.c"),
        ("abc", "cab", (), "abc"),
        ("abc", "xabc", (), "abcx"),
        ("abc", "axc", (), "axc"),
        ("abc", "axc", (1,), "a.cx"),
        ("abc", "bx", (), "xb."),
        ("abc", "xy", (), "xy."),
        ("abc", "xy", (0, 2), ".x.y"),
        ("---", "---", (0, 2), "---"),
        ("--c", "---", (1,), "---"),
    ],
)
def test_a_new_gpu_takes_the_place_of_none_that_is_there_or_still_held(
    before: str, now: str, held: tuple[int, ...], places: str
) -> None:
    def seen(uuids: str) -> NodeFacts:
        devices = tuple(
            Device(index=i, uuid=uuid.strip("-"), name="A10", memory_mib=24, simulated=False)
            for i, uuid in enumerate(uuids)
        )
        return msgspec.structs.replace(node(), devices=devices)

    moved = moved_places(seen(before), seen(now), held)
    found = {moved.get(index, index): uuid for index, uuid in enumerate(now)}
    assert "".join(found.get(place, ".") for place in range(len(places))) == places
