"""One machine with GPUs of several models: each is told apart, by type and by group."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines import gpu_models
from carrel_scheduler.ledger.records import Ledger
from carrel_scheduler.node.contract import DeviceLink
from carrel_scheduler.workloads.admission import NotAdmitted, admit
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import DevicesSampled
from carrel_schema.objects import Meta, NodeGroupLists, Resources, Workload, WorkloadSpec
from unit.workloads.conftest import opened
from unit.workloads.harness import MachineHarness, SchedulerHarness

A100, T4 = "A100-SXM4-80GB", "Tesla T4"
MODELS = (A100, T4, A100, T4)


class UnlikeHarness(MachineHarness):
    """A harness on one machine with GPUs of two models, unlike ones connected better."""

    def __init__(self, ledger: Ledger, tmp_path: Path, gpus: int = 4) -> None:
        super().__init__(ledger, tmp_path, gpus)
        devices = tuple(
            msgspec.structs.replace(device, name=name)
            for device, name in zip(self.facts.devices, MODELS, strict=True)
        )
        near = (DeviceLink(0, 1, 0), DeviceLink(2, 3, 0))
        self.facts = msgspec.structs.replace(self.facts, devices=devices, links=near)


@pytest.fixture
async def machine(empty_ledger: Path, tmp_path: Path) -> AsyncIterator[SchedulerHarness]:
    async with opened(empty_ledger, tmp_path, 4, UnlikeHarness) as harness:
        yield harness


def devices_of(harness: SchedulerHarness, uid: str) -> tuple[int, ...]:
    [task] = harness.tasks_of(uid)
    return harness.engine.specs[task].devices


async def submitted(harness: SchedulerHarness, name: str, gpus: float, **asked: Any) -> str:
    uid = await harness.submit("vision", name, gpus, **asked)
    if await harness.phase(uid) == "starting":
        await harness.runs(uid)
    return uid


@pytest.mark.parametrize("gpus", [1, 0.6])
async def test_the_first_type_that_is_free_is_taken(machine: SchedulerHarness, gpus: float) -> None:
    await machine.project("vision", 4)
    wish = ["T4", "A100"]
    found = [await submitted(machine, f"j{n}", gpus, gpu_types=wish) for n in range(4)]
    assert [devices_of(machine, uid) for uid in found] == [(1,), (3,), (0,), (2,)]


async def test_work_moves_to_a_better_gpu_of_the_machine(machine: SchedulerHarness) -> None:
    await machine.project("vision", 4)
    wish: dict[str, Any] = {"gpu_types": ["A100", "T4"]}
    found = [await submitted(machine, f"j{n}", 1, **wish) for n in range(2)]
    moving = await submitted(machine, "moving", 1, **wish, move_to_better_type=True)
    assert devices_of(machine, moving) == (1,)
    await machine.ends(found[1], 0)
    assert await machine.phase(moving) == "preempting"
    waits = await submitted(machine, "other", 1, gpu_types=["A100"])
    await machine.ends(moving, 143)
    assert devices_of(machine, moving) == (2,)
    assert await machine.phase(waits) == "pending", "the place is held"
    status = (await machine.stored(moving)).status
    assert status.last_preemption is not None
    assert (status.failures, status.last_preemption.rule) == (0, "improve")
    await machine.runs(moving)
    await machine.ends(found[0], 0)
    assert await machine.phase(moving) == "running", "nothing is better for it"


async def test_work_waits_for_a_type_of_which_none_is_free_and_says_so(
    machine: SchedulerHarness,
) -> None:
    await machine.project("vision", 4)
    running = [await submitted(machine, f"j{n}", 1, gpu_types=["A100"]) for n in range(2)]
    waits = await submitted(machine, "waits", 1, gpu_types=["A100"])
    status = (await machine.stored(waits)).status
    assert status.phase == "pending"
    assert status.reason is not None
    assert status.reason.sentence == "Waiting for 1 GPU: all 2 are in use; `j0` holds 1."
    other = await submitted(machine, "other", 1)
    assert devices_of(machine, other) == (1,)
    device = devices_of(machine, running[1])
    await machine.ends(running[1], 0)
    assert devices_of(machine, waits) == device


@pytest.mark.parametrize(("model", "devices"), [("T4", (1, 3)), ("A100", (0, 2))])
async def test_work_of_higher_priority_has_that_of_its_type_preempted(
    machine: SchedulerHarness, model: str, devices: tuple[int, ...]
) -> None:
    await machine.project("vision", 4)
    low = [await submitted(machine, f"j{n}", 1, priority="low") for n in range(4)]
    high = await machine.submit("vision", "high", 1, gpu_types=[model], priority="very-high")
    (victim,) = [uid for uid in low if await machine.phase(uid) == "preempting"]
    (device,) = devices_of(machine, victim)
    assert device in devices
    await machine.ends(victim, 143)
    assert devices_of(machine, high) == (device,)


async def test_work_with_several_gpus_gets_equal_ones(machine: SchedulerHarness) -> None:
    """Though unlike ones are connected better."""
    await machine.project("vision", 4)
    first, second = [await submitted(machine, f"j{n}", 2) for n in range(2)]
    assert [devices_of(machine, first), devices_of(machine, second)] == [(0, 2), (1, 3)]
    await machine.ends(first, 0)
    await machine.ends(second, 0)
    assert devices_of(machine, await submitted(machine, "all", 4)) == (0, 1, 2, 3)


async def test_each_gpu_is_in_the_group_of_its_model(machine: SchedulerHarness) -> None:
    await machine.project("vision", 4)
    group = gpu_models.group_named_after(T4)
    assert group == "tesla-t4"
    first, second, third = [
        await submitted(machine, f"j{n}", 1, node_group=group) for n in range(3)
    ]
    assert [devices_of(machine, first), devices_of(machine, second)] == [(1,), (3,)]
    assert await machine.phase(third) == "pending"
    without = await submitted(machine, "cpu", 0, node_group=group)
    assert await machine.phase(without) == "running"
    assert machine.loop.external_pods.node_groups() == {"a100-sxm4-80gb", "tesla-t4"}


async def test_a_project_is_kept_to_the_group_of_a_model(machine: SchedulerHarness) -> None:
    groups = NodeGroupLists(training=["tesla-t4"])
    await machine.project("vision", 4, node_groups=groups)
    found = [await submitted(machine, f"j{n}", 1) for n in range(3)]
    assert [devices_of(machine, uid) for uid in found[:2]] == [(1,), (3,)]
    assert await machine.phase(found[2]) == "pending"
    odd = await submitted(machine, "odd", 1, gpu_types=["A100"])
    assert await machine.phase(odd) == "pending"


async def test_use_counts_for_the_type_and_group_of_the_gpus_that_were_held(
    machine: SchedulerHarness,
) -> None:
    await machine.project("vision", 4)
    plain = await submitted(machine, "plain", 1, gpu_types=["T4"])
    mixed = await submitted(machine, "mixed", 3)
    for uid, where in ((plain, (T4, "tesla-t4")), (mixed, ("", ""))):
        rows = await machine.ledger.transitions(workload_uid=uid)
        [place] = rows[-1].places
        assert (place.gpu_type, place.node_group) == where


def refusal(harness: SchedulerHarness, **asked: Any) -> str:
    spec = WorkloadSpec(command=["x"], resources=Resources(gpu_milli=1000), **asked)
    try:
        admit(
            Workload(meta=Meta(name="a", uid="u", project="vision"), spec=spec),
            LiveState(harness.loop),
        )
    except NotAdmitted as refused:
        return str(refused)
    return ""


async def test_types_and_groups_that_are_not_there_are_refused(machine: SchedulerHarness) -> None:
    await machine.project("vision", 4)
    assert refusal(machine, gpu_types=["T4", "A100"]) == ""
    assert refusal(machine, node_group="tesla-t4") == ""
    assert refusal(machine, gpu_types=["H100"])
    assert refusal(machine, node_group="tesla-v100")


async def test_a_gpu_that_is_lost_changes_no_type(machine: SchedulerHarness) -> None:
    await machine.project("vision", 4)
    blank = msgspec.structs.replace(machine.facts.devices[0], name="", broken=True)
    facts = msgspec.structs.replace(machine.facts, devices=(blank, *machine.facts.devices[1:]))
    machine.loop.enqueue(DevicesSampled(facts, ()))
    await machine.settle()
    uid = await submitted(machine, "j", 1, gpu_types=["A100"])
    assert devices_of(machine, uid) == (2,)


class DividedHarness(MachineHarness):
    """A harness whose first GPU is divided as work asks; the second has no MIG."""

    def __init__(self, ledger: Ledger, tmp_path: Path, gpus: int = 2) -> None:
        super().__init__(ledger, tmp_path, gpus)
        names, undivided = ("H100 80GB HBM3", "Tesla T4"), (False, True)
        devices = tuple(
            msgspec.structs.replace(device, name=name, undivided=plain)
            for device, name, plain in zip(self.facts.devices, names, undivided, strict=True)
        )
        self.facts = msgspec.structs.replace(self.facts, devices=devices, mig_model="H100-80GB")


@pytest.fixture
async def divided(empty_ledger: Path, tmp_path: Path) -> AsyncIterator[SchedulerHarness]:
    async with opened(empty_ledger, tmp_path, 2, DividedHarness) as harness:
        yield harness


def instance(profile: str) -> dict[str, Any]:
    return {"resources": Resources(mig_profile=profile, cpu_milli=100, memory_bytes=1 << 20)}


def held(harness: SchedulerHarness, uid: str) -> tuple[tuple[int, ...], str, int]:
    [task] = harness.tasks_of(uid)
    spec = harness.engine.specs[task]
    return spec.devices, spec.mig_profile, spec.mig_slots


async def test_whole_gpus_without_mig_are_given_beside_instances_of_others(
    divided: SchedulerHarness,
) -> None:
    await divided.project("vision", 4)
    first, second, third = [
        await submitted(divided, f"i{n}", 0, **instance("3g.40gb")) for n in range(3)
    ]
    assert [held(divided, uid)[:2] for uid in (first, second)] == [((0,), "3g.40gb")] * 2
    assert await divided.phase(third) == "pending", "the other GPU has no instances"
    whole = await submitted(divided, "whole", 1)
    assert held(divided, whole) == ((1,), "", 0)
    waits = await submitted(divided, "waits", 1)
    assert await divided.phase(waits) == "pending"
    await divided.ends(whole, 0)
    assert held(divided, waits) == ((1,), "", 0)
    assert await divided.phase(third) == "pending"
    await divided.recover()
    assert await divided.phase(third) == "pending"


async def test_a_divided_gpu_is_given_whole_where_no_other_is_free(
    divided: SchedulerHarness,
) -> None:
    await divided.project("vision", 4)
    plain, named = [
        await submitted(divided, name, 1, gpu_types=types)
        for name, types in (("plain", []), ("named", ["H100"]))
    ]
    assert held(divided, plain)[0] == (1,)
    assert held(divided, named) == ((0,), "7g.80gb", 0xFF)


async def test_nobody_is_evicted_from_a_gpu_without_mig_for_an_instance(
    divided: SchedulerHarness,
) -> None:
    await divided.project("vision", 4)
    low = [
        await submitted(divided, f"j{n}", 1, priority="low", gpu_types=types)
        for n, types in enumerate((["H100"], ["T4"]))
    ]
    high = await divided.submit("vision", "high", 0, priority="very-high", **instance("1g.10gb"))
    assert await divided.phases(*low) == ["preempting", "running"]
    await divided.ends(low[0], 143)
    assert held(divided, high)[:2] == ((0,), "1g.10gb")
