"""Reports of agents on nodes of a cluster, where processes tell whose a GPU is."""

from collections.abc import Mapping

import msgspec
import pytest

from carrel_scheduler.node.contract import (
    Device,
    DeviceLink,
    DeviceUse,
    HealthCondition,
    NodeReport,
    OwnerUse,
)
from carrel_scheduler.workloads.nodes.reported import places_of
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import NodeReported
from carrel_schema.objects import TrainingLimits
from unit.workloads.harness import NODE, SchedulerHarness, devices_of, on_device

REAL = tuple(
    Device(index=i, uuid=f"GPU-{i}", name="H200", memory_mib=143_000, simulated=False)
    for i in range(4)
)


def use(index: int, *owners: tuple[str, float | None], attributed: bool = True) -> DeviceUse:
    found = tuple(
        OwnerUse(owner=uid, utilization=work, memory_used_mib=100) for uid, work in owners
    )
    busy = max((work or 0.0 for _, work in owners), default=0.0)
    return DeviceUse(
        index=index,
        utilization=busy,
        memory_used_mib=100 * len(owners),
        owners=found,
        attributed=attributed,
    )


async def report(
    harness: SchedulerHarness,
    *found: DeviceUse,
    devices: tuple[Device, ...] = REAL,
    known_gpus: Mapping[str, frozenset[str]] | None = None,
) -> None:
    by_index = {one.index: one for one in found}
    whole = tuple(by_index.get(index, use(index)) for index in range(len(devices)))
    links = (DeviceLink(0, 1, 0),)
    told = NodeReport(driver="580", devices=devices, use=whole, links=links)
    harness.loop.enqueue(NodeReported(NODE, told, known_gpus or {}))
    await harness.settle()


@pytest.fixture
async def cluster(harness: SchedulerHarness) -> SchedulerHarness:
    """The node's GPUs are counted only, as a cluster tells of them."""
    harness.facts = msgspec.structs.replace(harness.facts, counted=True)
    await harness.recover()
    return harness


async def test_a_gpu_is_shown_where_its_work_is_and_work_is_judged_by_its_processes(
    cluster: SchedulerHarness,
) -> None:
    """The kubelet gave `busy` GPU 3 and `idle` GPU 0; the core counted 0 and 1."""
    limits = TrainingLimits(idle_gpu_seconds=120.0)
    await cluster.project("vision", 4, training=limits)
    busy = await cluster.submit("vision", "busy")
    idle = await cluster.submit("vision", "idle")
    await cluster.runs(busy, idle)
    for _ in range(5):
        await report(cluster, use(3, (busy, 0.8)), use(0, (idle, 0.0)))
        await cluster.wait(30.0)
    assert await cluster.phases(busy, idle) == ["running", "stopping"]
    places = {holder.name: device for device in devices_of(cluster) for holder in device.holders}
    assert (places["busy"].uuid, places["busy"].utilization) == ("GPU-3", 0.8)
    assert (places["idle"].uuid, places["idle"].utilization) == ("GPU-0", 0.0)
    assert places["busy"].holders[0].utilization == 0.8
    assert places["busy"].memory_mib == 143_000
    [node] = LiveState(cluster.loop).nodes()
    assert node.driver == "580"


@pytest.mark.parametrize("doubt", ["nobody's process", "no counters", "silence", "elsewhere"])
async def test_doubt_stops_nothing_on_a_cluster(cluster: SchedulerHarness, doubt: str) -> None:
    await cluster.project("vision", 4, training=TrainingLimits(idle_gpu_seconds=120.0))
    uid = await cluster.submit("vision", "train")
    await cluster.runs(uid)
    await report(cluster, use(0, (uid, 0.0)))
    for _ in range(20):
        await cluster.wait(30.0)
        match doubt:
            case "nobody's process":
                await report(cluster, use(2, attributed=False))
            case "no counters":
                await report(cluster, use(0, (uid, None)))
            case "elsewhere":
                told = NodeReport(driver="", devices=REAL, use=(use(0, (uid, 0.0)),))
                cluster.loop.enqueue(NodeReported("another", told))
                await cluster.settle()
    assert await cluster.phase(uid) == "running"


@pytest.mark.parametrize(
    ("idle_on", "known", "phase"),
    [
        pytest.param({0}, "", "stopping", id="named on as many GPUs as it has"),
        pytest.param(set(), "GPU-1", "stopping", id="it is known to have another"),
        pytest.param(set(), "", "running", id="it may have any"),
        pytest.param(set(), "GPU-3", "running", id="it has that one"),
        pytest.param(set(), "MIG-1", "running", id="nobody knows where that is"),
    ],
)
async def test_a_gpu_with_an_unknown_user_leaves_only_those_in_doubt_who_may_have_it(
    cluster: SchedulerHarness, idle_on: set[int], known: str, phase: str
) -> None:
    """GPU 3 is busy, and nobody knows for whom."""
    await cluster.project("vision", 4, training=TrainingLimits(idle_gpu_seconds=120.0))
    uid = await cluster.submit("vision", "train")
    await cluster.runs(uid)
    own = [use(index, (uid, 0.0)) for index in idle_on]
    known_gpus = {uid: frozenset({known})} if known else {}
    for _ in range(5):
        await report(cluster, *own, use(3, attributed=False), known_gpus=known_gpus)
        await cluster.wait(30.0)
    assert await cluster.phase(uid) == phase


async def test_work_that_is_named_on_fewer_gpus_than_it_has_may_have_any_other(
    cluster: SchedulerHarness,
) -> None:
    await cluster.project("vision", 4, training=TrainingLimits(idle_gpu_seconds=120.0))
    uid = await cluster.submit("vision", "train", gpus=2)
    await cluster.runs(uid)
    for _ in range(5):
        await report(cluster, use(0, (uid, 0.0)), use(3, attributed=False))
        await cluster.wait(30.0)
    assert await cluster.phase(uid) == "running"


async def test_a_sick_gpu_ends_the_work_whose_processes_are_there(
    cluster: SchedulerHarness,
) -> None:
    await cluster.project("vision", 4)
    uids = [await cluster.submit("vision", f"job-{number}") for number in range(2)]
    await cluster.runs(*uids)
    sick = HealthCondition(key="ecc:1", severity="failed", message="memory error")
    devices = (*REAL[:3], msgspec.structs.replace(REAL[3], conditions=(sick,)))
    other = on_device(cluster, 0).workload_uid
    theirs = on_device(cluster, 1)
    await report(cluster, use(3, (theirs.workload_uid, 0.5)), use(1, (other, 0.5)), devices=devices)
    assert list(cluster.engine.stopping) == [theirs]
    assert [device.broken for device in devices_of(cluster)] == [False, True, False, False]
    cluster.finish(theirs, None, signal=15)
    await cluster.settle()
    assert on_device(cluster, 2).workload_uid == theirs.workload_uid
    await report(cluster, use(1, (other, 0.5)))
    assert not any(device.broken for device in devices_of(cluster))


def test_places_follow_processes_then_what_was_before_then_what_is_free() -> None:
    held = {0: {"a"}, 1: {"b"}}
    first = places_of(REAL, {2: {"b"}}, held, {}, 4)
    assert first == {2: 1, 0: 2, 1: 3, 3: 0}
    before = {f"GPU-{index}": place for index, place in first.items()}
    assert places_of(REAL, {2: {"b"}, 3: {"a"}}, held, before, 4) == first
    assert places_of(REAL, {}, {}, before, 4) == first
    moved = places_of(REAL, {0: {"a"}, 2: {"b"}}, held, before, 4)
    assert (moved[0], moved[2], len(set(moved.values()))) == (0, 1, 4)


async def test_what_goes_beyond_its_part_of_a_gpu_is_told_on_a_cluster_too(
    cluster: SchedulerHarness,
) -> None:
    """The node's label may say nothing of memory: the agent's driver does."""
    await cluster.project("vision", 4)
    uid = await cluster.submit("vision", "half", 0.5)
    await cluster.runs(uid)
    held = 143_000 // 2 + 5_000
    over = OwnerUse(owner=uid, utilization=0.5, memory_used_mib=held)
    for _ in range(3):
        seen = DeviceUse(index=3, utilization=0.5, memory_used_mib=held, owners=(over,))
        await report(cluster, seen)
    told = (await cluster.stored(uid)).status.reason
    assert told is not None
    assert told.token == "GpuMemoryExceeded"
    await report(cluster, use(3, (uid, 0.5)))
    assert (await cluster.stored(uid)).status.reason is None


async def test_where_nobody_knows_a_gpus_memory_nothing_is_beyond_it(
    cluster: SchedulerHarness,
) -> None:
    await cluster.project("vision", 4)
    uid = await cluster.submit("vision", "half", 0.5)
    await cluster.runs(uid)
    unknown = tuple(msgspec.structs.replace(one, memory_mib=0) for one in REAL)
    over = OwnerUse(owner=uid, utilization=0.5, memory_used_mib=99_000)
    for _ in range(5):
        seen = DeviceUse(index=0, utilization=0.5, memory_used_mib=99_000, owners=(over,))
        await report(cluster, seen, devices=unknown)
    assert (await cluster.stored(uid)).status.reason is None


async def test_a_gpu_that_is_closed_takes_nothing_new_and_ends_nothing(
    cluster: SchedulerHarness,
) -> None:
    await cluster.project("vision", 4)
    uids = [await cluster.submit("vision", f"job-{number}") for number in range(2)]
    await cluster.runs(*uids)
    closed = HealthCondition(key="mig", severity="closed", message="none can be made")
    devices = (*REAL[:3], msgspec.structs.replace(REAL[3], conditions=(closed,)))
    await report(cluster, use(3, (uids[0], 0.5)), devices=devices)
    assert not cluster.engine.stopping
    assert await cluster.phases(*uids) == ["running", "running"]
    [device] = [one for one in devices_of(cluster) if one.uuid == "GPU-3"]
    assert (device.broken, device.message) == (True, "none can be made")
    others = [await cluster.submit("vision", f"other-{number}") for number in range(2)]
    await cluster.runs(*others)
    await cluster.ends(uids[0])
    late = await cluster.submit("vision", "late")
    await cluster.settle()
    assert await cluster.phase(late) == "pending", "the place that is free is closed"
    await report(cluster)
    await cluster.runs(late)


async def test_a_node_says_that_the_driver_limits_fractions_as_long_as_its_agent_does(
    cluster: SchedulerHarness,
) -> None:
    def said() -> str:
        [node] = LiveState(cluster.loop).nodes()
        return node.fractions

    assert said() == ""
    told = NodeReport(driver="615", devices=REAL, use=(), limits_memory=True)
    for refusal, words in (("", "by the limiter and the driver's limit."), ("no", "refused")):
        one = msgspec.structs.replace(told, limit_refusal=refusal)
        cluster.loop.enqueue(NodeReported(NODE, one, {}))
        await cluster.settle()
        assert words in said()
    await report(cluster)
    assert said() == ""
