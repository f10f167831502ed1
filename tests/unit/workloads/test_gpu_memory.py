"""Memory of shared GPUs: asked for as such, and work that holds more than its part."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from carrel_scheduler.node.contract import DeviceUse, NodeFacts, OwnerUse
from carrel_scheduler.service.local import NotedProvider
from carrel_scheduler.workloads import admission
from carrel_scheduler.workloads.admission import NotAdmitted
from carrel_scheduler.workloads.launch.task_specs import part_of
from carrel_scheduler.workloads.nodes.gpu_memory import Enforcement
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import DevicesSampled
from carrel_schema.objects import Meta, ReasonInfo, Resources, Workload, WorkloadSpec
from unit.workloads.harness import SchedulerHarness

OWN = 24_000 * 3 // 10
ROOM = 1024 + OWN // 50


async def looks(harness: SchedulerHarness, times: int, **held: int) -> None:
    """The device is looked at so often while these workloads hold so many MiB."""
    owners = tuple(
        OwnerUse(owner=uid, utilization=0.5, memory_used_mib=mib) for uid, mib in held.items()
    )
    use = DeviceUse(index=0, utilization=1.0, memory_used_mib=sum(held.values()), owners=owners)
    for _ in range(times):
        harness.loop.enqueue(DevicesSampled(harness.facts, (use,)))
        await harness.settle()


async def reason(harness: SchedulerHarness, uid: str) -> ReasonInfo | None:
    return (await harness.stored(uid)).status.reason


@pytest.fixture
async def shares(harness: SchedulerHarness) -> tuple[str, str]:
    await harness.project("vision", 1)
    uids = await harness.submit("vision", "small", 0.3), await harness.submit("vision", "half", 0.5)
    await harness.runs(*uids)
    return uids


async def test_the_owner_is_told_for_as_long_as_it_lasts(
    harness: SchedulerHarness, shares: tuple[str, str]
) -> None:
    small, half = shares
    await looks(harness, 2, **{small: OWN + ROOM + 1, half: 12_000})
    assert await reason(harness, small) is None, "a moment is nothing"
    await looks(harness, 1, **{small: OWN + ROOM + 1, half: 12_000})
    told = await reason(harness, small)
    assert told is not None
    assert told.token == "GpuMemoryExceeded"
    assert f"{OWN + ROOM + 1} MiB" in told.sentence
    assert f"{OWN} MiB are its own with 0.3 of a GPU" in told.sentence
    assert await reason(harness, half) is None
    assert await harness.phase(small) == "running"
    await looks(harness, 1, **{small: OWN, half: 12_000})
    assert await reason(harness, small) is None


async def test_contexts_of_programs_within_their_part_are_no_excess(
    harness: SchedulerHarness, shares: tuple[str, str]
) -> None:
    await looks(harness, 9, **{shares[0]: OWN + ROOM})
    assert await reason(harness, shares[0]) is None


async def test_looks_in_between_begin_the_count_anew(
    harness: SchedulerHarness, shares: tuple[str, str]
) -> None:
    for _ in range(4):
        await looks(harness, 2, **{shares[0]: 20_000})
        await looks(harness, 1, **{shares[0]: 100})
    assert await reason(harness, shares[0]) is None


@pytest.mark.parametrize(("enforcement", "ended"), [("end", True), ("off", False)])
async def test_the_admin_chooses_what_is_done(
    harness: SchedulerHarness, shares: tuple[str, str], enforcement: Enforcement, ended: bool
) -> None:
    harness.gpu_memory = enforcement
    await harness.recover()
    small, half = shares
    await looks(harness, 5, **{small: 20_000, half: 12_000})
    assert await harness.phases(small, half) == ["stopping" if ended else "running", "running"]
    told = await reason(harness, small)
    assert (told is not None and told.sentence.startswith("Stopped: it held 20000")) is ended


async def test_whole_gpus_are_nobodys_business(harness: SchedulerHarness) -> None:
    await harness.project("vision", 1)
    uid = await harness.submit("vision", "whole", 1)
    await harness.runs(uid)
    await looks(harness, 5, **{uid: 24_000})
    assert await reason(harness, uid) is None


async def asked(harness: SchedulerHarness, uid: str, mib: int) -> Workload:
    """A request for memory of a GPU, admitted."""
    spec = WorkloadSpec(
        command=["true"], user="ada", resources=Resources(gpu_memory_mib=mib, cpu_milli=100)
    )
    workload = Workload(meta=Meta(name=uid, project="vision", uid=uid), spec=spec)
    admission.admit(workload, LiveState(harness.loop))
    return workload


async def test_memory_becomes_the_share_of_the_smallest_gpu_that_has_it(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 1)
    await harness.gpus_work()
    workload = await asked(harness, "five", 5120)
    assert workload.spec.resources.gpu_milli == 220, "5120 of 24000 MiB, in hundredths upwards"
    assert part_of(workload.spec.resources, 24_000) == 5120, "the limit is what was asked for"
    assert (await asked(harness, "all", 24_000)).spec.resources.gpu_milli == 1000
    with pytest.raises(NotAdmitted, match="at most 24000 MiB") as refused:
        await asked(harness, "more", 24_001)
    assert (refused.value.field, refused.value.code) == ("gpu_memory_bytes", "never_fits")


class Machine:
    """A provider whose GPUs are real or not, as the facts say."""

    def __init__(self, harness: SchedulerHarness, *, simulated: bool) -> None:
        self._facts = msgspec.structs.replace(harness.facts, simulated=simulated)

    def facts(self) -> NodeFacts:
        return self._facts

    def sample(self, tasks_by_device: Mapping[int, Sequence[int]]) -> Sequence[DeviceUse]:
        return [DeviceUse(index=0, utilization=1.0, memory_used_mib=len(tasks_by_device))]


@pytest.mark.parametrize(("simulated", "said"), [(True, ""), (False, "Kept.")])
async def test_a_node_says_whether_fractions_are_kept(
    harness: SchedulerHarness, simulated: bool, said: str
) -> None:
    noted: list[Sequence[DeviceUse]] = []
    provider = NotedProvider(Machine(harness, simulated=simulated), noted.append, lambda: "Kept.")
    harness.loop.enqueue(DevicesSampled(provider.facts(), ()))
    await harness.settle()
    [node] = LiveState(harness.loop).nodes()
    assert node.fractions == said
    assert [provider.sample({0: [7]})] == noted
