"""GPUs that go away: shown as lost, the work that was on them runs again, the rest goes on."""

import msgspec
import pytest

from carrel_scheduler.engines.contract import TaskId
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
from carrel_schema.answers import DeviceView
from carrel_schema.sections import Retries
from unit.workloads.desk import NODE, Desk, node_facts


def shown(desk: Desk, node: str = NODE) -> list[DeviceView]:
    return list(next(one for one in LiveState(desk.loop).nodes() if one.name == node).devices)


def on_device(desk: Desk, device: int) -> TaskId:
    return next(one for one in desk.engine.alive if device in desk.engine.specs[one].devices)


async def test_after_a_restart_with_fewer_gpus_work_goes_on_with_those(desk: Desk) -> None:
    """4 GPUs in use, 2 after the restart."""
    await desk.project("vision", 4)
    uids = [await desk.submit("vision", f"job-{number}") for number in range(4)]
    await desk.runs(*uids)
    stays = [on_device(desk, 0), on_device(desk, 1)]
    lost = [on_device(desk, 2), on_device(desk, 3)]
    desk.facts = node_facts(2)
    await desk.recover()
    assert [device.broken for device in shown(desk)] == [False, False, True, True]
    assert shown(desk)[3].message == NOT_SHOWN
    [view] = LiveState(desk.loop).nodes()
    assert (view.gpu_milli, view.gpu_allocated_milli) == (2000, 2000)
    assert set(desk.engine.stopping) == set(lost)
    assert await desk.phases(*(task.workload_uid for task in stays)) == ["running"] * 2
    for task in lost:
        desk.finish(task, None, signal=15)
    await desk.settle()
    for task in lost:
        stored = await desk.stored(task.workload_uid)
        assert (stored.status.phase, stored.status.failures) == ("pending", 0)
    desk.finish(stays[0])
    await desk.wait(60.0)
    phases = sorted(await desk.phases(*(task.workload_uid for task in lost)))
    assert phases == ["pending", "starting"]
    assert on_device(desk, 0).workload_uid in {task.workload_uid for task in lost}


async def test_a_gpu_that_vanishes_takes_only_its_own_work_with_it(desk: Desk) -> None:
    await desk.project("vision", 4)
    uids = [await desk.submit("vision", f"job-{number}") for number in range(4)]
    await desk.runs(*uids)
    task = on_device(desk, 3)
    desk.loop.enqueue(DevicesSampled(node_facts(3), ()))
    await desk.settle()
    assert list(desk.engine.stopping) == [task]
    assert shown(desk)[3].broken
    desk.finish(task, 1)
    await desk.settle()
    stored = await desk.stored(task.workload_uid)
    assert (stored.status.phase, stored.status.failures) == ("pending", 0)
    reason = stored.status.reason
    assert reason is not None
    desk.loop.enqueue(DevicesSampled(node_facts(4), ()))  # it is back
    await desk.wait(60.0)
    assert not shown(desk)[3].broken
    assert await desk.phase(task.workload_uid) == "starting"


async def test_a_workspace_on_a_lost_gpu_stops_and_says_so(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "room", kind="workspace", gpus=4)
    await desk.runs(uid)
    desk.loop.enqueue(DevicesSampled(node_facts(2), ()))
    await desk.settle()
    await desk.ends(uid, None, signal=15)
    stored = await desk.stored(uid)
    assert stored.status.phase == "stopped"
    assert stored.status.reason is not None
    assert stored.status.reason.sentence == "Stopped: GPUs 2, 3 of desk were lost."


async def test_a_gang_on_a_lost_gpu_starts_again_together(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "gang", kind="distributed", tasks=3)
    await desk.runs(uid)
    desk.loop.enqueue(DevicesSampled(node_facts(2), ()))
    await desk.settle()
    assert len(desk.engine.stopping) == 3
    await desk.ends(uid, None, signal=15)
    stored = await desk.stored(uid)
    assert (stored.status.phase, stored.status.failures) == ("pending", 0)


async def test_a_job_that_may_lose_no_gpu_fails(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "job", gpus=4, retries=Retries(gpu=0))
    await desk.runs(uid)
    desk.loop.enqueue(DevicesSampled(node_facts(2), ()))
    await desk.settle()
    await desk.ends(uid, None, signal=15)
    status = (await desk.stored(uid)).status
    assert status.phase == "failed"
    assert status.reason is not None
    assert status.reason.sentence == "Failed: its process was lost (GPUs 2, 3 of desk were lost)."


async def test_a_device_that_says_it_is_lost_counts_as_lost(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "job", gpus=4)
    await desk.runs(uid)
    devices = list(desk.facts.devices)
    devices[1] = msgspec.structs.replace(devices[1], broken=True, message="ECC error")
    desk.loop.enqueue(
        DevicesSampled(msgspec.structs.replace(desk.facts, devices=tuple(devices)), ())
    )
    await desk.settle()
    assert not desk.engine.stopping  # broken: nothing new starts there, what runs goes on
    devices[1] = msgspec.structs.replace(devices[1], lost=True, message="GPU is lost")
    desk.loop.enqueue(
        DevicesSampled(msgspec.structs.replace(desk.facts, devices=tuple(devices)), ())
    )
    await desk.settle()
    assert len(desk.engine.stopping) == 1


async def test_a_node_that_only_the_core_knows_is_shown_as_lost(desk: Desk) -> None:
    keep_node(desk.loop.state, "gone", (0, 2))
    [node] = [one for one in LiveState(desk.loop).nodes() if one.name == "gone"]
    assert node.status == "lost"
    assert [device.broken for device in node.devices] == [True, True, True]
    await desk.project("vision", 4)  # quotas ask for the nodes, too


async def test_devices_keep_their_places_when_the_driver_counts_anew(desk: Desk) -> None:
    """GPU 1 falls off, and what was GPU 2 and 3 is told of as 1 and 2."""
    named = [msgspec.structs.replace(one, uuid=f"u{one.index}") for one in desk.facts.devices]
    desk.loop.enqueue(DevicesSampled(msgspec.structs.replace(desk.facts, devices=tuple(named)), ()))
    await desk.project("vision", 4)
    uids = [await desk.submit("vision", f"job-{number}") for number in range(4)]
    await desk.runs(*uids)
    task, works = on_device(desk, 1), on_device(desk, 3)
    fewer = tuple(
        msgspec.structs.replace(named[old], index=new) for new, old in enumerate((0, 2, 3))
    )
    use = tuple(
        DeviceUse(index=i, utilization=1.0 if i == 2 else 0.0, memory_used_mib=0) for i in range(3)
    )
    desk.loop.enqueue(DevicesSampled(msgspec.structs.replace(desk.facts, devices=fewer), use))
    await desk.settle()
    assert list(desk.engine.stopping) == [task]
    assert [(one.uuid, one.broken) for one in shown(desk)] == [
        ("u0", False),
        ("u1", True),
        ("u2", False),
        ("u3", False),
    ]
    entry = desk.loop.cache.get(works.workload_uid)
    assert entry is not None
    assert entry.gpu_active_at == desk.now


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
    desk: Desk, *, known: bool
) -> None:
    """GPU 1 falls off while nobody looks: what was GPU 3 is told of as GPU 2."""
    named = [
        msgspec.structs.replace(one, uuid=f"u{one.index}", simulated=False)
        for one in desk.facts.devices
    ]
    desk.facts = msgspec.structs.replace(desk.facts, devices=tuple(named), simulated=False)
    await desk.recover()
    await desk.project("vision", 4)
    uids = [await desk.submit("vision", f"job-{number}") for number in range(4)]
    await desk.runs(*uids)
    works = on_device(desk, 3)
    ends = [one for one in desk.engine.alive if one != works]
    for task in ends:
        desk.finish(task, 0)
    await desk.settle()
    fewer = [msgspec.structs.replace(named[old], index=new) for new, old in enumerate((0, 2, 3))]
    desk.facts = msgspec.structs.replace(desk.facts, devices=tuple(fewer))
    if not known:
        desk.finish(works, 0)
        await desk.settle()
    await desk.recover()
    if not known:
        assert [one.uuid for one in shown(desk)] == ["u0", "u2", "u3"], "nobody knows the old ones"
        return
    assert [(one.uuid, one.broken) for one in shown(desk)] == [
        ("u0", False),
        ("u1", True),
        ("u2", False),
        ("u3", False),
    ]
    more = await desk.submit("vision", "more", gpus=2)
    assert desk.engine.specs[desk.tasks_of(more)[0]].device_uuids == ("u0", "u2")
    assert await desk.phase(works.workload_uid) == "running"


async def test_a_record_of_devices_that_cannot_be_read_is_set_aside(desk: Desk) -> None:
    await desk.project("vision", 4)
    uid = await desk.submit("vision", "job", gpus=4)
    await desk.ledger.put_setting("known_devices", {NODE: 5})
    await desk.recover()
    assert desk.loop.quarantine.counts
    assert await desk.phase(uid) == "starting"


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
