"""Work with a program of ours in virtual time: what it is told, and when nobody looks any more."""

import json
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.contract import TaskSpec
from carrel_scheduler.workloads.launch.task_specs import events_of
from carrel_scheduler.workloads.namespaces.adoption import Refused, completed
from carrel_scheduler.workloads.reconcile.live import LiveState
from carrel_schema.history import Report
from carrel_schema.objects import Meta, Workload, WorkloadSpec
from carrel_schema.sections import NotebookSpec, NotebookStatus, Route, TensorBoardSpec
from unit.workloads.harness import SchedulerHarness

BOARD: dict[str, Any] = {
    "kind": "tensorboard",
    "preemptible": False,
    "tensorboard": TensorBoardSpec(jobs=("train-1",), events=("uid-of-train",)),
    "routes": [Route(access="project", keep_prefix=True, idle_seconds=600.0)],
}


async def board(harness: SchedulerHarness, **changes: Any) -> str:
    await harness.project("vision", 1)
    uid = await harness.submit("vision", "board", 0, **{**BOARD, **changes})
    await harness.runs(uid)
    return uid


def started(harness: SchedulerHarness, uid: str) -> TaskSpec:
    return next(spec for task, spec in harness.engine.specs.items() if task.workload_uid == uid)


async def test_a_notebook_job_finds_what_it_has_to_do(harness: SchedulerHarness) -> None:
    await harness.project("vision", 1)
    section = NotebookSpec(path="/a.ipynb", parameters={"rate": 0.1}, cell_timeout_seconds=5.0)
    uid = await harness.submit(
        "vision", "night", kind="notebook", notebook=section, grace_seconds=9.0
    )
    task = started(harness, uid)
    order = json.loads(task.files[".carrel/notebook.json"])
    assert order["path"] == "/a.ipynb"
    assert order["parameters"] == {"rate": 0.1}
    assert (order["cell_timeout_seconds"], order["grace_seconds"]) == (5.0, 9.0)
    assert (task.events, task.reads_events) == (uid, ())


async def test_what_its_program_says_is_its_status_and_why_it_failed(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 1)
    uid = await harness.submit(
        "vision", "night", kind="notebook", notebook=NotebookSpec(path="/a.ipynb"), backoff_limit=0
    )
    await harness.runs(uid)
    said = NotebookStatus(cell=2, cells=3, error="Cell 3 of 3 failed: KeyError: 'x'.")
    await LiveState(harness.loop).report(
        uid, Report(at=harness.now, done=2.0, total=3.0, notebook=said)
    )
    await harness.ends(uid, 1)
    status = (await harness.stored(uid)).status
    assert status.phase == "failed"
    assert status.notebook == said
    assert status.reason is not None
    assert status.reason.sentence.startswith("Failed: Cell 3 of 3 failed: KeyError: 'x'. ")


async def test_other_work_has_no_notebooks_status(harness: SchedulerHarness) -> None:
    await harness.project("vision", 1)
    uid = await harness.submit("vision", "train-1")
    await harness.runs(uid)
    await LiveState(harness.loop).report(
        uid, Report(at=harness.now, notebook=NotebookStatus(cell=1))
    )
    await harness.wait(2.0)
    assert (await harness.stored(uid)).status.notebook is None


@pytest.mark.parametrize(
    ("spec", "where"),
    [
        (WorkloadSpec(), "u1"),
        (WorkloadSpec(kind="trial", owner="sweep", part=3), "sweep/3"),
        (WorkloadSpec(kind="workspace"), ""),
    ],
)
def test_where_event_files_go(spec: WorkloadSpec, where: str) -> None:
    assert events_of("u1", spec) == where


async def test_a_tensorboard_may_read_the_event_files_of_its_jobs(
    harness: SchedulerHarness,
) -> None:
    uid = await board(harness)
    task = started(harness, uid)
    assert task.reads_events == ("uid-of-train",)
    order = json.loads(task.files[".carrel/tensorboard.json"])
    assert (order["jobs"], order["events"]) == (["train-1"], ["uid-of-train"])


async def test_a_tensorboard_runs_our_program_whatever_its_object_was_changed_to(
    harness: SchedulerHarness,
) -> None:
    changed: dict[str, Any] = {
        "command": ["/home/ada/page"],
        "environment": {"PYTHONPATH": "/home/ada"},
        "files": {"tensorboard.py": "x"},
        "image": "registry.invalid/page",
        "volumes": [("/home/ada", "runs")],
        "working_dir": "/home/ada",
    }
    task = started(harness, await board(harness, **changed))
    assert task.command[1:] == ("-I", "-m", "carrel.job.tensorboard")
    assert "PYTHONPATH" not in task.environment
    assert list(task.files) == [".carrel/tensorboard.json"]
    assert (task.image, task.volumes, task.working_dir) == ("", (), "")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("command", ["x"]),
        ("environment", {"PYTHONPATH": "/x"}),
        ("files", {"x.py": "x"}),
        ("image", "registry.invalid/page"),
        ("routes", [Route(), Route(name="evil", port=23456, access="everyone")]),
        ("volumes", [("/home/ada", "runs")]),
        ("working_dir", "/home/ada"),
    ],
)
def test_a_tensorboard_of_a_manifest_is_refused_with_a_program_of_its_author(
    field: str, value: Any
) -> None:
    section = TensorBoardSpec(jobs=("train-1",))
    spec = WorkloadSpec(kind="tensorboard", user="ada", tensorboard=section, **{field: value})
    with pytest.raises(Refused, match=rf"spec\.{field}: no `{field}`") as refused:
        completed(Workload(meta=Meta(name="board", project="vision"), spec=spec), {})
    assert refused.value.reason == "OwnProgram"


def test_a_tensorboard_of_a_manifest_gets_our_program_and_one_route() -> None:
    section = TensorBoardSpec(jobs=("train-1",), idle_seconds=60.0)
    spec = WorkloadSpec(kind="tensorboard", user="ada", tensorboard=section)
    made = completed(Workload(meta=Meta(name="board", project="vision"), spec=spec), {}).spec
    assert made.command[1:] == ["-I", "-m", "carrel.job.tensorboard"]
    assert made.routes == [Route(access="project", keep_prefix=True, idle_seconds=60.0)]


async def test_a_tensorboard_that_nobody_looks_at_is_stopped(harness: SchedulerHarness) -> None:
    uid = await board(harness)
    await harness.wait(599.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(1.0)
    assert await harness.phase(uid) == "stopping"
    await harness.ends(uid, 143)
    reason = (await harness.stored(uid)).status.reason
    assert reason is not None
    assert reason.token == "Idle"
    assert reason.sentence == "Stopped: nobody has looked at it for 10 min."


async def test_every_visit_begins_the_time_anew(harness: SchedulerHarness) -> None:
    uid = await board(harness)
    await harness.wait(500.0)
    LiveState(harness.loop).visited(uid, harness.now)
    LiveState(harness.loop).visited(uid, None)
    LiveState(harness.loop).visited("nobody", harness.now)
    await harness.wait(599.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(1.0)
    assert await harness.phase(uid) == "stopping"


async def test_a_restart_of_the_scheduler_is_no_idleness(harness: SchedulerHarness) -> None:
    uid = await board(harness)
    await harness.wait(100.0)
    LiveState(harness.loop).visited(uid, harness.now)
    await harness.wait(590.0)
    await harness.recover()
    await harness.wait(80.0)
    assert await harness.phase(uid) == "running"
    LiveState(harness.loop).visited(uid, harness.now)
    await harness.wait(599.0)
    assert await harness.phase(uid) == "running"
    await harness.wait(1.0)
    assert await harness.phase(uid) == "stopping"


async def test_without_a_limit_it_stays(harness: SchedulerHarness) -> None:
    routes = [msgspec.structs.replace(BOARD["routes"][0], idle_seconds=None)]
    uid = await board(harness, routes=routes)
    await harness.wait(86_400.0)
    assert await harness.phase(uid) == "running"


async def test_a_changed_priority_counts_at_once_and_after_the_present_run(
    harness: SchedulerHarness,
) -> None:
    await harness.project("vision", 4)
    running = await harness.submit("vision", "running", 4)
    await harness.runs(running)
    later = await harness.submit("vision", "later", 4)
    assert await harness.phases(running, later) == ["running", "pending"]
    await harness.change(later, priority=70)
    assert await harness.phases(running, later) == ["preempting", "pending"]
    await harness.change(running, priority=80)  # as the core hears when it waits again
    await harness.change(later, preemptible=False)
    await harness.ends(running, 143)
    await harness.runs(later)
    between = await harness.submit("vision", "between", 4, priority=75)
    assert await harness.phases(running, later, between) == ["pending", "running", "pending"]
    await harness.ends(later)
    assert await harness.phases(running, between) == ["starting", "pending"]
