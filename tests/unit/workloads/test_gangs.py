"""Gangs in virtual time: together at the start and after a loss, each by itself at the end."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.engines.contract import TaskId, TaskPhase
from carrel_scheduler.workloads.state import shape
from carrel_scheduler.workloads.state.events import MembersMet, TaskSeen
from carrel_schema.objects import Resources, WorkloadSpec
from carrel_schema.sections import Elastic, Rendezvous
from unit.workloads.harness import SchedulerHarness


async def gang(
    harness: SchedulerHarness, project: str = "vision", workers: int = 2, **spec: Any
) -> str:
    """A distributed training with one GPU for each worker, submitted."""
    name = f"ddp-{workers}"
    return await harness.submit(project, name, 1, kind="distributed", tasks=workers, **spec)


def attempts(harness: SchedulerHarness, uid: str) -> list[tuple[int, int]]:
    """(index, attempt) of the processes that are alive."""
    return [(task.index, task.attempt) for task in harness.tasks_of(uid)]


async def member_ends(
    harness: SchedulerHarness, uid: str, index: int, code: int | None, *, signal: int = 0
) -> None:
    (task,) = [one for one in harness.tasks_of(uid) if one.index == index]
    harness.finish(task, code, signal=signal)
    await harness.settle()


async def gpus_by_row(harness: SchedulerHarness, uid: str) -> list[int]:
    return [row.gpu_milli for row in await harness.ledger.transitions(workload_uid=uid)]


async def test_nothing_starts_until_all_fit_and_then_all_do(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    other = await harness.submit("vision", "other", 2)
    await harness.runs(other)
    uid = await gang(harness, workers=3)
    assert (await harness.phase(uid), attempts(harness, uid)) == ("pending", [])
    await harness.ends(other)
    assert attempts(harness, uid) == [(0, 0), (1, 0), (2, 0)]
    await harness.runs(uid)
    assert await harness.phase(uid) == "running"
    assert await gpus_by_row(harness, uid) == [0, 3000, 3000]


async def test_members_are_told_where_they_meet(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await gang(harness, workers=2)
    told = [harness.engine.specs[task].environment for task in harness.tasks_of(uid)]
    (port,) = {one["MASTER_PORT"] for one in told}
    assert [one["RANK"] for one in told] == ["0", "1"]
    assert [one["WORLD_SIZE"] for one in told] == ["2", "2"]
    assert [one["PET_NODE_RANK"] for one in told] == ["0", "1"]
    assert {one["PET_NNODES"] for one in told} == {"2"}
    assert {one["JAX_COORDINATOR_ADDRESS"] for one in told} == {f"127.0.0.1:{port}"}
    assert told[1]["CARREL_MEMBERS"] == "ddp-2-0=127.0.0.1,ddp-2-1=127.0.0.1"
    stored = (await harness.stored(uid)).status.tasks[0].ports
    assert stored == {shape.RENDEZVOUS: int(port)}


async def test_a_lost_worker_ends_all_and_all_start_again_from_the_next_attempt(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uid = await gang(harness, workers=3)
    await harness.runs(uid)
    await member_ends(harness, uid, 1, None, signal=9)
    status = (await harness.stored(uid)).status
    assert status.phase == "running"
    assert status.reason is not None
    assert "worker 1: signal 9" in status.reason.sentence
    assert {task.index for task in harness.engine.stopping} == {0, 2}
    await harness.ends(uid, 143)
    status = (await harness.stored(uid)).status
    assert (status.phase, status.failures, status.attempt) == ("pending", 1, 1)
    assert status.reason is not None
    assert "worker 1: signal 9" in status.reason.sentence
    await harness.wait(10.0)
    assert attempts(harness, uid) == [(0, 1), (1, 1), (2, 1)]


async def test_a_worker_lost_with_its_node_is_no_failure(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await gang(harness, workers=2)
    await harness.runs(uid)
    (first, _) = harness.tasks_of(uid)
    gone = msgspec.structs.replace(
        harness.engine.alive.pop(first), phase=TaskPhase.ENDED, lost=True, ended_at=harness.now
    )
    harness.loop.enqueue(TaskSeen(gone))
    await harness.settle()
    await harness.ends(uid, 143)
    status = (await harness.stored(uid)).status
    assert (status.phase, status.failures) == ("starting", 0)
    assert attempts(harness, uid) == [(0, 1), (1, 1)]


async def test_the_first_to_be_done_leaves_its_room_and_the_others_go_on(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2)
    uid = await gang(harness, workers=4)
    await harness.runs(uid)
    waiting = await harness.submit("vision", "waiting")
    await member_ends(harness, uid, 0, 0)
    assert await harness.phases(uid, waiting) == ["running", "starting"]
    assert await gpus_by_row(harness, uid) == [0, 4000, 4000, 4000, 3000]
    assert (await harness.stored(uid)).status.tasks[0].place == "done"
    await harness.ends(uid, 0)
    assert await harness.phase(uid) == "succeeded"


async def test_when_a_worker_fails_after_others_were_done_all_come_again(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    uid = await gang(harness, workers=3)
    await harness.runs(uid)
    await member_ends(harness, uid, 0, 0)
    await member_ends(harness, uid, 1, 3)
    await harness.ends(uid, 143)
    assert await harness.phase(uid) == "pending"
    await harness.wait(10.0)
    assert attempts(harness, uid) == [(0, 1), (1, 1), (2, 1)]
    await harness.runs(uid)
    await harness.ends(uid, 0)
    assert await harness.phase(uid) == "succeeded"


async def test_a_preempted_gang_of_which_one_was_done_comes_back_whole(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 1)
    await harness.project("language", 3)
    uid = await gang(harness, workers=3)
    await harness.runs(uid)
    await member_ends(harness, uid, 0, 0)
    claim = await harness.submit("language", "claim", 3)
    assert await harness.phases(uid, claim) == ["preempting", "pending"]
    await harness.ends(uid, 143)
    assert await harness.phases(uid, claim) == ["pending", "starting"]
    await harness.runs(claim)
    await harness.ends(claim)
    assert attempts(harness, uid) == [(0, 1), (1, 1), (2, 1)]


async def test_when_the_first_of_an_mpi_gang_is_done_the_gang_is(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    uid = await gang(harness, workers=3, rendezvous=Rendezvous(launcher="mpi"))
    first, second, _ = (harness.engine.specs[task] for task in harness.tasks_of(uid))
    assert first.command == ("python", "train.py")
    assert second.command[-1] == "carrel.job.mpi.member"
    assert first.files["hostfile"] == "ddp-3-0\nddp-3-1\nddp-3-2\n"
    await harness.runs(uid)
    await member_ends(harness, uid, 0, 0)
    await harness.ends(uid, 143)
    assert await harness.phase(uid) == "succeeded"


async def test_an_elastic_gang_grows_shrinks_and_grows_under_fresh_ids(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 2)
    await harness.project("language", 2)
    claim = await harness.submit("language", "claim", 2)
    await harness.runs(claim)
    uid = await gang(harness, workers=4, elastic=Elastic(min_tasks=1))
    assert attempts(harness, uid) == [(0, 0), (1, 0)]
    assert harness.engine.specs[TaskId(uid, 0, 0)].environment["PET_NNODES"] == "1:4"
    await harness.runs(uid)
    await harness.ends(claim)
    assert attempts(harness, uid) == [(0, 0), (1, 0), (2, 0), (3, 0)]
    await harness.runs(uid)
    again = await harness.submit("language", "again", 1)
    status = (await harness.stored(uid)).status
    assert status.phase == "running"
    assert status.reason is not None
    assert status.reason.sentence.startswith("Gives back 1 of its 4 workers.")
    assert {task.index for task in harness.engine.stopping} == {3}
    await member_ends(harness, uid, 3, 143)
    assert await harness.phase(again) == "starting"
    assert (await harness.stored(uid)).status.reason is None
    await harness.runs(again)
    await harness.ends(again)
    assert attempts(harness, uid) == [(0, 0), (1, 0), (2, 0), (3, 1)]
    await harness.runs(uid)
    assert (await gpus_by_row(harness, uid))[-1] == 4000
    await member_ends(harness, uid, 2, 1)
    await harness.ends(uid, 143)
    await harness.wait(10.0)
    assert attempts(harness, uid) == [(index, 2) for index in range(4)]


async def test_t4_one_task_gets_idle_gpus_and_gives_them_back(harness_2: SchedulerHarness) -> None:
    harness = harness_2
    await harness.project("vision", 2)
    elastic = Elastic(gpus_of_task=True)
    uid = await harness.submit("vision", "elastic", 1, elastic=elastic)
    await harness.runs(uid)
    (task,) = harness.tasks_of(uid)
    assert len(harness.engine.specs[task].devices) == 2
    filler = await harness.submit("vision", "filler", 1, kind="workspace", preemptible=False)
    assert await harness.phases(uid, filler) == ["running", "pending"]
    assert task in harness.engine.stopping
    await harness.ends(uid, 143)
    assert await harness.phases(uid, filler) == ["starting", "starting"]
    (task,) = harness.tasks_of(uid)
    assert len(harness.engine.specs[task].devices) == 1
    await harness.runs(uid, filler)
    await harness.change(uid, delete=True)
    await harness.ends(uid, 143)
    pair = await harness.submit("vision", "pair", 2, elastic=elastic)
    (task,) = harness.tasks_of(pair)
    assert len(harness.engine.specs[task].devices) == 1
    await harness.runs(pair)
    await harness.ends(filler)
    assert task in harness.engine.stopping
    await harness.ends(pair, 143)
    (task,) = harness.tasks_of(pair)
    assert len(harness.engine.specs[task].devices) == 2
    await harness.runs(pair)
    assert await harness.phase(pair) == "running"
    assert await gpus_by_row(harness, pair) == [0, 1000, 1000, 2000, 2000, 2000]
    await harness.ends(pair, 0)
    assert await harness.phase(pair) == "succeeded"


async def test_two_shares_of_one_gpu_are_told_what_is_theirs(harness: SchedulerHarness) -> None:
    await harness.project("vision", 1)
    small = await harness.submit("vision", "small", 0.3)
    half = await harness.submit("vision", "half", 0.5)
    specs = [harness.engine.specs[task] for uid in (small, half) for task in harness.tasks_of(uid)]
    assert specs[0].devices == specs[1].devices
    assert specs[0].environment["CARREL_GPU_SHARE"] == "0.3"
    assert specs[0].environment["CARREL_GPU_MEMORY_MIB"] == "7200"
    assert [spec.gpu_memory_mib for spec in specs] == [7200, 12000]
    assert (await gpus_by_row(harness, small))[-1] == 300


@pytest.mark.parametrize(
    ("gpus", "largest", "least", "most"), [(1, 2, 1, 2), (2, 2, 1, 2), (6, 8, 3, 6), (4, 8, 1, 8)]
)
def test_sizes_of_a_task_whose_gpus_change(gpus: int, largest: int, least: int, most: int) -> None:
    spec = WorkloadSpec(
        resources=Resources(gpu_milli=gpus * 1000), elastic=Elastic(gpus_of_task=True)
    )
    assert (shape.least_parts(spec), shape.most_parts(spec, largest)) == (least, most)


async def test_protected_elastic_work_protects_its_minimum_only(harness: SchedulerHarness) -> None:
    await harness.project("vision", 1)
    await harness.project("language", 3)
    uid = await gang(harness, workers=4, elastic=Elastic(min_tasks=1), preemptible=False)
    workload = await harness.stored(uid)
    assert shape.preemptibility(workload) is Preemptibility.SURPLUS
    await harness.runs(uid)
    claim = await harness.submit("language", "claim", 3)
    assert {task.index for task in harness.engine.stopping} == {1, 2, 3}
    for index in (1, 2, 3):
        await member_ends(harness, uid, index, 143)
    assert await harness.phases(uid, claim) == ["running", "starting"]


async def test_a_worker_that_never_meets_the_others_ends_the_gang_by_name(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    rendezvous = Rendezvous(join_timeout_seconds=60.0)
    uid = await gang(harness, workers=3, rendezvous=rendezvous)
    await harness.runs(uid)
    harness.loop.enqueue(MembersMet(uid, frozenset({0, 2})))
    await harness.wait(61.0)
    status = (await harness.stored(uid)).status
    assert status.reason is not None
    assert "worker 1 has not met the others at port" in status.reason.sentence
    await harness.ends(uid, 143)
    status = (await harness.stored(uid)).status
    assert (status.phase, status.failures) == ("pending", 1)
    assert status.reason is not None
    assert "worker 1 has not met the others" in status.reason.sentence


async def test_a_gang_that_met_or_meets_elsewhere_is_left_alone(harness: SchedulerHarness) -> None:
    await harness.project("vision", 4)
    rendezvous = Rendezvous(join_timeout_seconds=60.0)
    met = await gang(harness, workers=2, rendezvous=rendezvous)
    await harness.runs(met)
    harness.loop.enqueue(MembersMet(met, frozenset({0})))
    await harness.settle()
    harness.loop.enqueue(MembersMet(met, frozenset({1})))
    await harness.settle()
    elsewhere = await harness.submit(
        "vision", "elsewhere", kind="distributed", tasks=2, rendezvous=rendezvous
    )
    await harness.runs(elsewhere)
    await harness.wait(120.0)
    assert await harness.phases(met, elsewhere) == ["running", "running"]
    assert not harness.engine.stopping


async def test_nobody_waits_for_the_members_of_an_mpi_gang_also_after_a_restart(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    rendezvous = Rendezvous(launcher="mpi", join_timeout_seconds=60.0)
    uid = await gang(harness, workers=2, rendezvous=rendezvous)
    await harness.runs(uid)
    for _ in range(2):
        harness.loop.enqueue(MembersMet(uid, frozenset({0})))
        await harness.wait(120.0)
        assert await harness.phase(uid) == "running"
        assert not harness.engine.stopping
        await harness.recover()
