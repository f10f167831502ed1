"""The texts that people and their scripts rely on, byte for byte."""

import json
from typing import Any

import pytest

from carrel.testing import FakeScheduler
from unit.cli.conftest import NOW, Run, golden

NODE: dict[str, Any] = {
    "name": "node-1",
    "status": "ready",
    "simulated": True,
    "cpu_milli": 16_000,
    "cpu_allocated_milli": 3_500,
    "memory_bytes": 64 * 1024**3,
    "memory_allocated_bytes": 3 * 512 * 1024**2,
    "gpu_milli": 4000,
    "gpu_allocated_milli": 1300,
    "largest_free_gpus": 2,
    "devices": [
        {
            "index": 0,
            "name": "A10",
            "simulated": True,
            "memory_mib": 24_576,
            "memory_used_mib": 12_800,
            "utilization": 0.93,
            "allocated_milli": 1000,
            "holders": [{"project": "vision", "name": "train-7", "uid": "uid-1"}],
        },
        {
            "index": 1,
            "name": "A10",
            "simulated": True,
            "memory_mib": 24_576,
            "allocated_milli": 300,
            "idle_since": NOW - 600,
            "holders": [{"project": "speech"}],
        },
        {"index": 2, "name": "A10", "memory_mib": 24_576, "broken": True, "message": "ECC error"},
    ],
    "links": [{"first": 0, "second": 1, "hops": 0}, {"first": 1, "second": 2, "hops": 2}],
}

REMEDIES: tuple[dict[str, Any], ...] = (
    {
        "change": "more-quota",
        "project": "vision",
        "resource": "gpu",
        "amount": 6000,
        "sentence": "An admin could raise the quota of project `vision` to 6 GPUs.",
    },
    {
        "change": "ends",
        "project": "speech",
        "sentence": "It starts when work of a member of `speech` ends.",
    },
)


def test_submit(run: Run) -> None:
    done = run("submit", "frac03-3", "-p", "vision", "-i", "trainer", "-g", "0.3", "--", "train")
    assert (done.code, done.err) == (0, "")
    golden("submit", done.out)


def test_delete_and_a_second_time(run: Run, story: FakeScheduler) -> None:
    done = run("delete", "job", "train-7", "frac", "-p", "vision")
    assert (done.code, done.err) == (0, "")
    golden("delete", done.out)
    again = run("delete", "job", "train-7", "lab-ada", "-p", "vision")
    assert (again.code, again.out) == (1, "Job lab-ada deleted successfully.\n")
    golden("delete_again", again.err)


def test_suspend_and_resume(run: Run, story: FakeScheduler) -> None:
    assert run("suspend", "train-7").out == "Job train-7 suspended successfully.\n"
    assert run("resume", "train-7").out == "Job train-7 resumed successfully.\n"
    again = run("resume", "train-7")
    assert (again.code, again.out) == (1, "")
    assert again.err == "It is not suspended, so there is nothing to resume.\n"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("list_jobs", ["list", "jobs"]),
        ("list_jobs_everywhere", ["list", "jobs", "-A", "--no-headers"]),
        ("list_jobs_wide", ["list", "jobs", "-o", "wide", "--status", "pending"]),
        ("list_jobs_json", ["list", "jobs", "-o", "json", "--status", "Running", "--user", "ada"]),
        ("list_projects", ["list", "projects"]),
        ("list_nodes", ["list", "nodes"]),
        ("top_node", ["top", "node"]),
        ("describe_node", ["describe", "node", "node-1"]),
        ("top_job", ["top", "job"]),
        ("queue", ["queue"]),
        ("usage", ["usage", "--since", "1d"]),
        ("describe_running", ["describe", "job", "train-7"]),
        ("describe_preempted", ["describe", "job", "train-8"]),
        ("describe_stopped", ["describe", "job", "late"]),
        ("describe_yaml", ["describe", "job", "done", "-o", "yaml"]),
        ("whoami", ["whoami"]),
    ],
)
def test_what_is_shown(run: Run, story: FakeScheduler, name: str, words: list[str]) -> None:
    story.nodes(NODE)
    done = run(*words)
    assert (done.code, done.err) == (0, "")
    golden(name, done.out)


def test_what_would_help_a_waiting_job(run: Run, story: FakeScheduler) -> None:
    story.submit("vision", "waits", gpus=4)
    story.wait("vision", "waits", "Waiting for 4 GPUs: 3 are in use.")
    story.remedies("vision", "waits", *REMEDIES)
    shown = run("describe", "job", "waits")
    assert (shown.code, shown.err) == (0, "")
    golden("describe_waiting", shown.out)
    told = json.loads(run("describe", "job", "waits", "-o", "json").out)["remedies"]
    assert [one["change"] for one in told] == ["more-quota", "ends"]
    story.remedies("vision", "waits", refused=True)
    assert "What would help" not in run("describe", "job", "waits").out


def test_admins_alone_list_what_is_set_aside(run: Run, story: FakeScheduler) -> None:
    aside = {"source": "node", "key": "node-7", "reason": "bad_quantity", "since": NOW - 90.0}
    work = {
        **aside,
        "source": "workload",
        "key": "uid7",
        "name": "vision/train-7",
        "message": "no number",
    }
    story.faults(set_aside=[aside, work], violated_invariants=["limits_held"])
    refused = run("list", "faults")
    assert (refused.code, refused.err) == (1, "Only an administrator may do this.\n")
    shown = run("list", "faults", user="root")
    assert [line.split() for line in shown.out.splitlines()] == [
        ["SOURCE", "NAME", "REASON", "FOR", "MESSAGE"],
        ["node", "node-7", "bad_quantity", "1", "min", "-"],
        ["workload", "vision/train-7", "bad_quantity", "1", "min", "no", "number"],
        ["invariant", "limits_held", "violated", "-", "-"],
    ]


def test_logs(run: Run, story: FakeScheduler) -> None:
    story.log("vision", "train-7", "step 1", "step 2")
    assert run("logs", "train-7").out == "step 1\nstep 2\n"
    assert run("logs", "train-7", "--tail", "1").out == "step 2\n"
    assert run("logs", "train-7", "--timestamps", "-t", "1").out == f"{NOW:.3f} step 2\n"


def test_logs_since(run: Run, story: FakeScheduler, clock: list[float]) -> None:
    story.log("vision", "train-7", "old")
    clock[0] += 600
    story.log("vision", "train-7", "new")
    assert run("logs", "train-7", "--since", "5m").out == "new\n"


def test_logs_are_followed_to_the_end(run: Run, story: FakeScheduler) -> None:
    story.log("vision", "done", "bye")
    assert run("logs", "done", "-f").out == "bye\n"


def test_logs_of_several_tasks_say_whose_line_it_is(run: Run, fake: FakeScheduler) -> None:
    fake.submit("vision", "gang", tasks=2)
    fake.log("vision", "gang", "hello")
    assert run("logs", "gang").out == "gang-0 | hello\ngang-1 | hello\n"
    assert run("logs", "gang", "--index", "1").out == "hello\n"


def test_limits_of_trainings(run: Run, fake: FakeScheduler) -> None:
    limits = ["--training-idle-timeout", "2h", "--training-time-limit", "7d"]
    run("project", "create", "new", *limits, user="root")
    week = 7 * 86_400
    both = {"idle_gpu_seconds": 7200, "time_limit_seconds": week, "apply_to_running": False}
    assert fake.project("new")["training"] == both
    run("project", "update", "new", "--training-idle-timeout", "none", user="root")
    assert fake.project("new")["training"] == both | {"idle_gpu_seconds": None}


def test_limits_may_hold_for_what_runs_already(run: Run, fake: FakeScheduler) -> None:
    def kept() -> tuple[bool, bool]:
        project = fake.project("new")
        return tuple(project[group]["apply_to_running"] for group in ("interactive", "training"))

    run("project", "create", "new", "--training-apply-to-running", user="root")
    assert kept() == (False, True)
    run("project", "update", "new", "--interactive-apply-to-running", user="root")
    assert kept() == (True, True)
    run("project", "update", "new", "--no-training-apply-to-running", user="root")
    assert kept() == (True, False)
    run("project", "update", "new", "--interactive-time-limit", "8h", user="root")
    assert kept() == (True, False)


def test_projects_of_an_administrator(run: Run, fake: FakeScheduler) -> None:
    limits = ["--interactive-time-limit", "8h", "--idle-timeout", "1h", "--warn-before", "10m"]
    limits += ["--extend", "1h", "--max-extensions", "2", "--limit-gpus", "4"]
    quota = ["--gpus", "2", "--memory", "64G", "--weight", "3"]
    made = run("project", "create", "new", *quota, *limits, user="root")
    assert made.out == "Project new created successfully.\n"
    project = fake.project("new")
    assert project["quota"] == {"gpus": 2, "cpu_millicores": None, "memory_bytes": 64 * 1024**3}
    assert (project["weight"], project["limit"]["gpus"], project["over_quota"]) == (3, 4, True)
    interactive = project["interactive"]
    assert interactive["time_limit_seconds"] == 8 * 3600
    assert interactive["idle_timeout_seconds"] == 3600
    assert (interactive["warn_before_seconds"], interactive["extend_seconds"]) == (600, 3600)
    assert interactive["max_extensions"] == 2
    changed = run("project", "update", "new", "--idle-timeout", "none", "--no-over-quota",
                  "--limit-gpus", "none", "--cpu", "500m", "--rank", "2")  # fmt: skip
    assert changed.out == "Project new updated successfully.\n"
    project = fake.project("new")
    assert project["interactive"]["idle_timeout_seconds"] is None
    assert project["interactive"]["time_limit_seconds"] == 8 * 3600
    assert (project["over_quota"], project["limit"]["gpus"], project["rank"]) == (False, None, 2)
    assert project["quota"]["cpu_millicores"] == 500
    golden("project_dry_run", run("project", "update", "new", "--gpus", "1", "--dry-run").out)
    assert fake.project("new")["quota"]["gpus"] == 2
    added = run("project", "add-user", "new", "ada")
    assert added.out == "User ada added to project new successfully.\n"
    removed = run("project", "remove-user", "new", "ada")
    assert removed.out == "User ada removed from project new successfully.\n"
    assert run("project", "delete", "new").out == "Project new deleted successfully.\n"


def test_projects_are_not_for_researchers(run: Run) -> None:
    done = run("project", "create", "mine")
    assert (done.code, done.out, done.err) == (1, "", "Only an administrator may do this.\n")


def test_version(run: Run) -> None:
    assert run("version").out == "carrel 0.1.0\n"
