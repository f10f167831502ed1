"""Sentences that the console makes."""

from dataclasses import replace

import msgspec
import pytest

from carrel.models import (
    Amounts,
    Checkpoint,
    Device,
    InteractiveLimits,
    Limits,
    Node,
    Preemption,
    Progress,
    Project,
    ProjectUse,
    Task,
    TrainingLimits,
    Workload,
    WorkloadSpec,
    WorkloadStatus,
)
from carrel_hub.console import words
from carrel_hub.console.pictures.timeline import StateSpan
from carrel_schema.kinds import WorkloadKind

NOW = 10_000.0


def job(kind: WorkloadKind = "training", **status: object) -> Workload:
    return Workload(
        name="train-7",
        project="vision",
        created_by="ada",
        spec=WorkloadSpec(kind=kind, user="ada"),
        status=WorkloadStatus(**status),  # type: ignore[arg-type]
    )


def test_names_in_backticks_become_bold_and_the_rest_is_escaped() -> None:
    assert words.prose("`a<b` & c") == "<b>a&lt;b</b> &amp; c"


def test_requests_leave_out_what_is_not_asked_for() -> None:
    plain = words.request(2, 4000, 16 * 1024**3).replace("\N{NO-BREAK SPACE}", " ")
    assert plain == "2 GPUs · 4 CPUs · 16 GiB"
    assert words.request(0, 0, 0) == "no\N{NO-BREAK SPACE}GPU"
    assert words.request(1, 0, 0, tasks=3).startswith("3 tasks of ")


@pytest.mark.parametrize(
    ("work", "sentence"),
    [
        (job(phase="pending"), "It is not running: no work is lost."),
        (
            job(phase="running", started_at=NOW - 100),
            "It has no checkpoint yet: 1 min 40 s of work is lost.",
        ),
        (
            job(
                phase="running", started_at=NOW - 900, checkpoint=Checkpoint(step=1200, at=NOW - 60)
            ),
            "1 min of work since the checkpoint at step 1,200 is lost.",
        ),
        (
            # Saved in an earlier attempt: this attempt's work counts from its own beginning.
            job(phase="running", started_at=NOW - 30, checkpoint=Checkpoint(step=5, at=NOW - 600)),
            "30 s of work since the checkpoint at step 5 is lost.",
        ),
        (
            job("workspace", phase="running", started_at=NOW),
            "Its notebooks' kernels and terminals end: variables in memory are lost.",
        ),
    ],
)
def test_what_a_deletion_costs(work: Workload, sentence: str) -> None:
    assert words.loss(work, NOW) == sentence


def test_what_stays() -> None:
    assert words.what_stays(job("workspace")) == "Files in the home folder stay."
    assert "checkpoints" in words.what_stays(job(checkpoint=Checkpoint(step=1, at=0.0)))
    assert "checkpoints" not in words.what_stays(job())


def test_a_preemption_says_for_whom_by_which_rule_and_at_what_cost() -> None:
    hidden = Preemption(
        at=0.0, rule="Reclaimed", for_project="speech", for_workload="", lost_seconds=100,
        checkpoint_step=1200,
    )  # fmt: skip
    assert words.preempted_for(hidden) == "a member of `speech`"
    assert words.preemption_rule(hidden) == "it ran on borrowed GPUs and their owner needs them"
    assert words.preemption_cost(hidden) == (
        "1 min 40 s of work was lost; it goes on from the checkpoint at step 1,200"
    )
    known = Preemption(
        at=0.0, rule="new-rule", for_project="speech", for_workload="align-2", lost_seconds=1
    )
    assert words.preempted_for(known) == "`speech/align-2`"
    assert words.preemption_rule(known) == "new-rule"
    assert "it begins again" in words.preemption_cost(known)
    moved = Preemption(at=0.0, rule="improve", for_project="", for_workload="")
    assert words.preempted_for(moved) == ""
    assert words.preemption_rule(moved) == "GPUs of a type that it prefers are free"


def test_progress() -> None:
    def told(phase: str = "running", **seen: object) -> str:
        progress = Progress(**seen)  # type: ignore[arg-type]
        return words.progress(job(phase=phase, progress=progress), NOW)

    assert told(done=1200, total=4000, rate=10, at=NOW) == "1,200 of 4,000 steps · 4 min left"
    assert told("pending", done=1200, total=4000, rate=10, at=NOW) == "1,200 of 4,000 steps"
    assert told(done=7) == "7 steps"
    assert told(done=0, total=1, unit="file") == "0 of 1 file"
    assert words.progress(job(), NOW) == ""


def test_rules_for_workspaces() -> None:
    assert words.interactive_rules(InteractiveLimits()) == [
        "Workspaces run until their owner stops them."
    ]
    rules = InteractiveLimits(
        time_limit_seconds=43_200,
        idle_timeout_seconds=3600,
        busy_cap_seconds=86_400,
        max_extensions=1,
    )
    assert words.interactive_rules(rules) == [
        "A workspace is stopped after 12 h.",
        "A workspace that nobody uses is stopped after 1 h.",
        "A cell that computes keeps it for 1 d at most.",
        "Its owner is told 10 min before and may keep it for 1 h more, once.",
    ]
    assert words.interactive_short(rules) == "12 h at most · 1 h idle"
    assert words.interactive_short(InteractiveLimits()) == "no time limit"


def test_rules_for_trainings() -> None:
    assert words.training_rules(TrainingLimits()) == ["Trainings run until they end."]
    rules = TrainingLimits(idle_gpu_seconds=7200, time_limit_seconds=604_800)
    assert words.training_rules(rules) == [
        "A training is stopped after 7 d.",
        "A training whose GPUs do nothing is stopped after 2 h.",
        "It can be resumed from its last checkpoint.",
    ]


def test_why_something_will_be_stopped() -> None:
    def told(kind: WorkloadKind, because: str) -> str:
        limits = Limits(stops_at=NOW, stops_because=because)
        return words.stop_because(job(kind, phase="running", limits=limits))

    assert told("workspace", "Idle") == "nobody has used it"
    assert told("training", "Idle") == "its GPUs have done nothing"
    assert told("training", "TimeLimit") == (
        "its project's time limit for trainings is reached then"
    )


def test_amounts() -> None:
    assert words.amounts(Amounts(gpus=2)) == "2 GPUs · any CPUs · any memory"
    assert words.amounts(Amounts(gpus=None, cpu_millicores=500, memory_bytes=1024**3)) == (
        "any GPUs · 0.5 CPU · 1 GiB"
    )


def test_free_room() -> None:
    devices = [Device(index=index) for index in range(6)]
    nodes = [
        Node(name="a", largest_free_gpus=3, devices=devices),
        Node(name="b", largest_free_gpus=4, devices=devices),
    ]
    assert words.largest_job(nodes) == "Largest job that would start now: 4 GPUs on one node."
    assert words.free_by_size(nodes) == [(1, 7), (2, 3), (4, 1)]
    full = [Node(name="a", devices=devices)]
    assert words.largest_job(full).startswith("No GPU is wholly free")
    starved = [
        Node(name="a", largest_free_gpus=2, devices=devices, cpu_milli=1, cpu_allocated_milli=1)
    ]
    assert words.largest_job(starved).startswith("GPUs are free, but beside them")
    assert words.free_by_size(starved)[0] == (1, 0)
    assert words.largest_job([]).startswith("There are no GPUs")
    assert words.free_by_size([]) == []


def test_how_a_task_ended() -> None:
    task = Task(index=0, attempt=0, node="a")
    ended = msgspec.structs.replace(task, ended_at=1)
    assert words.task_end(task) == ""
    assert words.task_end(msgspec.structs.replace(ended, exit_code=0)) == "ended well"
    assert words.task_end(msgspec.structs.replace(ended, exit_code=3)) == "ended with exit code 3"
    assert words.task_end(msgspec.structs.replace(ended, signal=9)) == "ended by signal 9"
    assert words.task_end(ended) == "ended, exit code unknown"


def test_changes_without_a_reason_are_explained() -> None:
    def note(phase: str, attempt: int = 0, first: bool = False) -> str:
        span = StateSpan(phase, 0, None, borrowed=False, attempt=attempt, where="", reason=None)
        return words.change_note(replace(span, first=first), job())

    assert note("pending", first=True) == "Submitted by ada."
    assert note("starting", 1) == "A place was found for attempt 2."
    assert note("running") == "Attempt 1."
    assert note("succeeded") == ""


def test_commands_restarts_and_deletable_projects() -> None:
    assert words.command_line(["a", "b c"]) == "a 'b c'"
    assert words.command_line([]) == "the workspace's own"
    assert words.restart_rule(WorkloadSpec(restart_policy="never")) == "it is not tried again"
    assert words.restart_rule(WorkloadSpec(backoff_limit=1)).endswith("once at most")
    stalls = WorkloadSpec(restart_when_stalled=True, stall_after_seconds=600)
    assert words.restart_rule(stalls).endswith("; when it stands still: restarted after 10 min")
    status = WorkloadStatus(failed_nodes=("n1",), failed_devices=("n1/0",))
    job = Workload(name="a", project="p", status=status)
    assert words.avoided(job) == "n1, GPU n1/0"
    careless = WorkloadSpec(avoid_failed_nodes=False)
    assert words.avoided(Workload(name="a", project="p", spec=careless, status=status)) == ""
    assert words.can_delete(Project(name="x"))
    assert not words.can_delete(Project(name="x", use=ProjectUse(waiting=1)))
