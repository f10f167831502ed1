"""No input ends the loop: what cannot be processed is set aside, and everything else goes on."""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.invariants import state as invariants
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.state import State
from carrel_scheduler.engines.contract import TaskId, TaskPhase, TaskStatus
from carrel_scheduler.ledger.records import Fenced
from carrel_scheduler.ledger.store import Change, ChangeType
from carrel_scheduler.workloads.faults.audit import MOST_SECONDS, StateAudit
from carrel_scheduler.workloads.lifecycle import task_events
from carrel_scheduler.workloads.reconcile import handlers, reconciler
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_scheduler.workloads.state.events import (
    CheckLimits,
    DepartmentChanged,
    DevicesSampled,
    MembersMet,
    ProjectChanged,
    StartRefused,
    TaskSeen,
    UsedLately,
    Wake,
    WorkloadChanged,
)
from carrel_schema.objects import (
    Department,
    DepartmentSpec,
    Meta,
    Project,
    ProjectSpec,
    Quota,
    Resources,
    Workload,
    WorkloadSpec,
)
from unit.workloads.harness import SchedulerHarness, node_facts

Corrupt = Callable[[random.Random], Any]


def _workload(chance: random.Random) -> WorkloadChanged:
    spec = WorkloadSpec(user="eve", resources=Resources(gpu_milli=1000))
    wrong: Any = chance.choice(
        [
            {"priority": "nonsense"},
            {"kind": "nonsense"},
            {"tasks": -1},
            {"resources": Resources(gpu_milli=-5000)},
            {"resources": Resources(gpu_milli=1500)},
            {"resources": None},
            {"routes": None},
        ]
    )
    for name, value in wrong.items():
        setattr(spec, name, value)
    number = chance.randrange(5)
    meta = Meta(name=f"bad-{number}", project="vision", uid=f"bad{number}", resource_version=9999)
    change = chance.choice([ChangeType.ADDED, ChangeType.MODIFIED])
    return WorkloadChanged(Change(change, 9999, Workload(meta=meta, spec=spec)))


def _project(chance: random.Random) -> ProjectChanged:
    spec = ProjectSpec(quota=Quota(gpu_milli=-3), department=chance.choice(["", "nowhere"]))
    meta = Meta(name=chance.choice(["broken", ""]))
    change = chance.choice(list(ChangeType))
    return ProjectChanged(Change(change, 9999, Project(meta=meta, spec=spec)))


def _department(chance: random.Random) -> DepartmentChanged:
    spec = DepartmentSpec(quota=Quota(gpu_milli=-7))
    change = chance.choice(list(ChangeType))
    return DepartmentChanged(Change(change, 9999, Department(meta=Meta(name="lab"), spec=spec)))


def _task(chance: random.Random) -> TaskSeen:
    uid, index = chance.choice(["uid1", "nobody", ""]), chance.choice([-1, 7, 10**9])
    return TaskSeen(
        TaskStatus(
            id=TaskId(uid, index, chance.choice([-1, 0, 99])),
            phase=chance.choice(list(TaskPhase)),
            node=chance.choice(["", "desk", "x"]),
            devices=chance.choice([(), (99,), (-1,)]),
        )
    )


def _devices(chance: random.Random) -> DevicesSampled:
    facts = node_facts(chance.choice([0, 900]))
    changed: Any = chance.choice([{"cpu_milli": -1}, {"name": ""}, {"memory_mib": None}])
    facts = msgspec.structs.replace(facts, **{"name": "other", **changed})
    return DevicesSampled(facts, ())


def _other(chance: random.Random) -> Any:
    wrong: Any = None
    return chance.choice(
        [
            UsedLately({"vision": wrong}),
            UsedLately(wrong),
            StartRefused(wrong, ""),
            MembersMet("uid1", wrong),
            CheckLimits(wrong),
            WorkloadChanged(wrong),
            object(),
        ]
    )


CORRUPT: list[Corrupt] = [_workload, _project, _department, _task, _devices, _other]


@pytest.mark.parametrize("seed", range(12))
async def test_good_inputs_are_processed_between_any_bad_ones(
    harness: SchedulerHarness, seed: int
) -> None:
    chance = random.Random(seed)
    await harness.project("vision", 4)
    running: list[str] = []
    for number in range(12):
        for _ in range(chance.randrange(6)):
            harness.loop.enqueue(chance.choice(CORRUPT)(chance))
        if running and chance.random() < 0.5:
            await harness.ends(running.pop(0))
        uid = await harness.submit("vision", f"job-{number}")
        if len(running) < 4:
            assert await harness.phase(uid) == "starting", number
            await harness.runs(uid)
            assert await harness.phase(uid) == "running", number
            running.append(uid)
        else:
            assert await harness.phase(uid) == "pending"
            await harness.change(uid, suspend=True)
            assert await harness.phase(uid) == "stopped"
    assert harness.loop.quarantine.counts


async def test_a_handler_that_fails_takes_its_workload_in_anew(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails half-way, with its changes made in memory: what is recorded counts."""
    await harness.project("vision", 4)
    uid = await harness.submit("vision", "job")
    await harness.runs(uid)
    follow = handlers.follow_specification

    def failing(cycle: Any, entry: Any) -> None:
        follow(cycle, entry)
        if entry.workload.spec.suspend:
            monkeypatch.undo()
            raise KeyError(entry.uid)

    monkeypatch.setattr(handlers, "follow_specification", failing)
    await harness.change(uid, suspend=True)
    assert await harness.phase(uid) == "stopping"
    assert list(harness.engine.stopping) == [TaskId(uid, 0, 0)]
    await harness.ends(uid, None, signal=15)
    assert await harness.phase(uid) == "stopped"
    other = await harness.submit("vision", "other", gpus=4)
    assert await harness.phase(other) == "starting"


async def test_what_fails_for_good_holds_up_nobody_and_doubles_no_gpu(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.project("vision", 4)
    bad = await harness.submit("vision", "bad")
    good = await harness.submit("vision", "good")
    await harness.runs(bad, good)
    [task] = harness.tasks_of(bad)
    [device] = harness.engine.specs[task].devices
    for module, name in ((handlers, "follow_specification"), (task_events, "on_task")):
        monkeypatch.setattr(module, name, _failing_for(bad, getattr(module, name)))
    await harness.change(bad, priority="high")
    assert harness.loop.cache.get(bad) is None
    assert [one.key for one in harness.loop.quarantine.items if one.source == "workload"] == [bad]
    assert harness.engine.stopping[task] == 0.0
    waits = await harness.submit("vision", "waits", gpus=3)
    assert await harness.phase(waits) == "pending"  # its GPU is used until the task has ended
    assert device not in {
        d for one in harness.tasks_of(good) for d in harness.engine.specs[one].devices
    }
    monkeypatch.undo()
    harness.finish(task, None, signal=9)
    await harness.settle()
    assert await harness.phase(waits) == "starting"
    await harness.ends(waits)
    await harness.change(bad, priority="low")  # its object changes: it is looked at again
    assert harness.loop.cache.get(bad) is not None
    assert not list(harness.loop.quarantine.items)


def _failing_for(uid: str, handler: Callable[..., None]) -> Callable[..., None]:
    def failing(cycle: Any, what: Any) -> None:
        of = what.id.workload_uid if isinstance(what, TaskStatus) else what.uid
        if of == uid:
            raise KeyError(of)
        handler(cycle, what)

    return failing


async def test_recovery_leaves_out_what_it_cannot_take_in(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.project("vision", 4)
    bad = await harness.submit("vision", "bad")
    good = await harness.submit("vision", "good")
    await harness.runs(bad, good)
    stored = await harness.stored(bad)
    stored.status.tasks[0] = msgspec.structs.replace(stored.status.tasks[0], devices=(0, 1, 77))
    await harness.ledger.update_status(stored)
    await harness.recover()
    assert await harness.phase(good) == "running"
    assert [one.key for one in harness.loop.quarantine.items] == [bad]
    assert [task.workload_uid for task in harness.engine.stopping] == [bad]
    other = await harness.submit("vision", "other", gpus=3)
    assert await harness.phase(other) == "pending"
    harness.finish(TaskId(bad, 0, 0), None, signal=9)
    await harness.settle()
    assert await harness.phase(other) == "starting"


async def test_one_who_keeps_deciding_from_working_is_set_aside(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.project("vision", 4)

    def failing(state: State, now: float, *_: Any) -> Plan:
        if any(job.spec.name == "poison" for job in state.jobs.by_uid.values()):
            raise ZeroDivisionError
        return decide(state, now)

    monkeypatch.setattr(reconciler, "decide", failing)
    first = await harness.submit("vision", "first")
    poison = await harness.submit("vision", "poison")
    last = await harness.submit("vision", "last")
    assert await harness.phases(first, poison, last) == ["starting", "pending", "starting"]
    reason = (await harness.stored(poison)).status.reason
    assert reason is not None
    assert reason.token == "SetAside"
    assert harness.loop.quarantine.holds("workload", poison)


async def test_deciding_that_fails_is_tried_again_ever_more_rarely(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.project("vision", 4)
    tried: list[float] = []

    def failing(state: State, now: float, *_: Any) -> Plan:
        tried.append(now)
        raise ZeroDivisionError

    monkeypatch.setattr(reconciler, "decide", failing)
    uid = await harness.submit("vision", "job")
    await harness.wait(600.0)
    assert len(tried) < 60
    assert harness.loop.quarantine.holds("decision", "plan")
    monkeypatch.setattr(reconciler, "decide", decide)
    await harness.wait(61.0)
    assert await harness.phase(uid) == "starting"
    assert not harness.loop.quarantine.holds("decision", "plan")


async def test_what_cannot_be_recorded_is_not_started_and_the_others_are(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    await harness.project("vision", 4)
    record = harness.ledger.record

    async def refusing(*, statuses: Any = (), **rest: Any) -> Any:
        if any(one.meta.name == "unwritable" for one in statuses):
            raise OverflowError("int too large")
        return await record(statuses=statuses, **rest)

    monkeypatch.setattr(harness.ledger, "record", refusing)
    harness.now += 1.0
    bad = await harness.submit("vision", "unwritable")
    good = await harness.submit("vision", "good")
    assert await harness.phases(bad, good) == ["pending", "starting"]
    assert [task.workload_uid for task in harness.engine.specs] == [good]
    assert harness.loop.quarantine.holds("record", bad)
    monkeypatch.undo()
    await harness.wait(61.0)
    assert await harness.phase(bad) == "starting"
    assert invariants.check(harness.loop.state) == []


async def test_another_scheduler_ends_this_one(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    await harness.ledger.begin_epoch()
    with pytest.raises(Fenced):
        await harness.submit("vision", "job")


async def test_what_falls_due_again_and_again_does_not_keep_a_processor_busy(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float | None] = []

    async def wait(seconds: float | None) -> None:
        waited.append(seconds)

    monkeypatch.setattr(harness.loop, "next_deadline", lambda: harness.now - 1.0)
    monkeypatch.setattr(harness.loop._inbox, "wait", wait)
    for _ in range(reconciler.MOST_PASSES_IN_A_ROW + 5):
        await harness.loop._something_happened()
    assert waited[0] == 0.0
    assert waited[-1] == reconciler.SLOW_PASS_SECONDS


async def test_a_violated_invariant_is_told_and_ends_nothing(
    harness: SchedulerHarness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = ["device 3 of desk holds 2000 of 1000"]

    def no_device_over_capacity(_state: Any) -> list[str]:
        return wrong

    def limits_held(_state: Any) -> list[str]:
        raise ZeroDivisionError

    harness.loop.audit = StateAudit(lambda: harness.now, (no_device_over_capacity, limits_held))
    before = LiveState(harness.loop).faults().violations
    assert before == {"no_device_over_capacity": 0, "limits_held": 0}
    await harness.project("vision", 1)
    for _ in range(3):
        harness.now += 1.5
        harness.loop.enqueue(Wake())
        await harness.settle()
    faults = LiveState(harness.loop).faults()
    assert faults.violated == ["limits_held", "no_device_over_capacity"]
    assert sum(faults.violations.values()) == 4
    assert caplog.text.count("device 3 of desk holds 2000") == 1
    wrong.clear()
    for _ in range(2):
        harness.now += 1.5
        harness.loop.enqueue(Wake())
        await harness.settle()
    assert LiveState(harness.loop).faults().violated == ["limits_held"]


async def test_invariants_take_a_small_share_of_the_time(harness: SchedulerHarness) -> None:
    looks: list[float] = []

    def slow(_state: Any) -> list[str]:
        looks.append(harness.now)
        harness.now += 0.02
        return []

    audit = StateAudit(lambda: harness.now, (slow,))
    begun = harness.now
    while harness.now < begun + 200.0:
        if audit.due_at <= harness.now:
            audit.look(harness.loop.state)
        harness.now += 0.01
    assert 0.009 * 200.0 <= len(looks) * 0.02 <= 0.011 * 200.0


async def test_a_clock_that_is_set_back_puts_no_invariant_off(harness: SchedulerHarness) -> None:
    looks: list[float] = []

    def quick(_state: Any) -> list[str]:
        looks.append(harness.now)
        return []

    harness.loop.audit = StateAudit(lambda: harness.now, (quick,))
    for seconds in (60.0, 0.1, -86_400.0, 1.5):
        harness.now += seconds
        harness.loop.enqueue(Wake())
        await harness.settle()
    assert looks == [harness.now + 86_400.0 - 1.6, harness.now]


async def test_an_invariant_that_takes_long_is_left_out(harness: SchedulerHarness) -> None:
    looks: list[str] = []

    def slow(_state: Any) -> list[str]:
        looks.append("slow")
        harness.now += 2 * MOST_SECONDS
        return []

    def quick(_state: Any) -> list[str]:
        looks.append("quick")
        return []

    audit = StateAudit(lambda: harness.now, (slow, quick))
    for _ in range(4):
        audit.look(harness.loop.state)
        harness.now += 60.0
    assert looks == ["slow", "quick", "quick", "quick"]
