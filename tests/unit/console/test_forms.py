"""Forms: from texts to requests and back, and errors at their fields."""

import pytest

from carrel.errors import ApiError
from carrel.models import Amounts, InteractiveLimits, Project, QuotaAmounts, TrainingLimits
from carrel.options import EVERY, KINDS
from carrel_hub.console import project_form
from carrel_hub.console.forms import Form, parse_duration, spell_duration
from carrel_hub.console.submission import form as submit_form
from carrel_hub.console.submission.offers import FormChoices

GIB = 1024**3
PROJECT = Project(
    name="vision",
    description="cells",
    quota=QuotaAmounts(gpus=2.5, memory_bytes=3 * GIB + 12_345),
    limit=Amounts(gpus=8),
    weight=3,
    interactive=InteractiveLimits(
        idle_timeout_seconds=2700, busy_cap_seconds=86_400, max_extensions=2
    ),
    training=TrainingLimits(idle_gpu_seconds=7200, apply_to_running=True),
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("8 h", 28800),
        ("90min", 5400),
        ("1 d 4 h", 100800),
        ("15", 900),
        ("1.5 h", 5400),
        ("30 s", 30),
        ("2 Days", 172800),
        ("1h30min", 5400),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "5 weeks", "-3 h", "h", "1 h and a bit", "1..5 h"])
def test_what_is_no_duration(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize("seconds", [45, 60, 900, 3600, 5400, 28_800, 86_400, 100_800, 3601, 0])
def test_spelled_durations_read_back_the_same(seconds: float) -> None:
    assert parse_duration(spell_duration(seconds)) == seconds


def test_no_duration_is_an_empty_field() -> None:
    assert spell_duration(None) == ""


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "two", "1e999"])
def test_bad_amounts_are_refused_at_their_field(text: str) -> None:
    form = Form({"gpus": text})
    assert form.amount("gpus", empty=7.0) == 7.0
    assert "gpus" in form.errors
    assert form.refused


def test_amounts_may_have_separators_and_may_be_left_out() -> None:
    form = Form({"gpus": " 1,200 "})
    assert form.amount("gpus") == 1200
    assert form.amount("cpus") is None
    assert not form.refused
    assert Form({"weight": "1.5"}).whole("weight") is None


def test_problems_of_the_api_find_their_field() -> None:
    form = Form({})
    problem = ApiError(
        422,
        "invalid",
        "Invalid",
        "Two fields are wrong.",
        [{"field": "memory_bytes", "value": 1, "expected": "at least 1 MiB"}, {"field": "odd"}],
    )
    form.take(problem, submit_form.fields_of("training"))
    assert form.errors == {"memory": "This should be at least 1 MiB."}
    assert "Two fields are wrong" in form.general
    other = Form({})
    other.take(ApiError(409, "exists", "Exists", "There is already a job."), {})
    assert other.general == "There is already a job."


def test_a_filled_form_is_a_training() -> None:
    form = Form(
        {"name": "train-7", "project": "vision", "command": "python 'my file.py' --lr 1e-3"}
        | {"gpus": "0.5", "cpu": "2", "memory": "1.5G", "environment": "A=1\nB=2=3\n"}
        | {"large-shm": "on", "preemptible": "no", "priority": ""}
    )
    assert submit_form.workload_body(form) == {
        "kind": "training",
        "name": "train-7",
        "project": "vision",
        "command": ["python", "my file.py", "--lr", "1e-3"],
        "gpus": 0.5,
        "cpu_millicores": 2000,
        "memory_bytes": round(1.5 * GIB),
        "environment": {"A": "1", "B": "2=3"},
        "large_shm": True,
        "preemptible": False,
    }
    assert not form.refused


def test_what_is_missing_is_marked() -> None:
    form = Form({"name": " ", "command": "echo 'open", "memory": "0", "volume": "data"})
    submit_form.workload_body(form)
    assert set(form.errors) == {"project", "command", "memory", "volume"}
    assert form.errors["memory"] == "'0' is too small; write 1M or more."


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_every_kind_has_its_form(kind: str) -> None:
    typed = {"kind": kind, "project": "vision", "command": "python t.py"}
    typed |= {"param": "lr=0.0..1.0" if kind == "experiment" else "a=1", "completions": "5"}
    typed |= {"notebook": "/home/ada/a.ipynb", "schedule": "0 3 * * *", "tensorboard": "a,b"}
    typed |= {"replicas": "2", "workers": "3"}
    form = Form(typed)
    body = submit_form.workload_body(form)
    assert not form.refused, form
    assert (body["kind"], body["name_prefix"]) == (kind, EVERY[kind].prefix)
    assert set(EVERY[kind].sections) <= set(body)
    names = [
        field.name
        for group in submit_form.groups(kind, FormChoices(), form)
        for field in group.fields
    ]
    assert len(names) == len(set(names))
    own = {"name", "project", "command", "code"}
    assert set(submit_form.fields_of(kind).values()) <= {*names, *own}


def test_what_contradicts_is_said_of_the_whole_form() -> None:
    form = Form(
        {"kind": "inference", "project": "vision", "command": "x"}
        | {"min-replicas": "3", "max-replicas": "2"}
    )
    submit_form.workload_body(form)
    assert form.general == "--min-replicas 3 is more than --max-replicas 2."


def test_an_untouched_project_has_no_changes_though_the_form_rounds() -> None:
    assert project_form.changes_of(project_form.form_of(PROJECT), PROJECT) == {}


def test_only_what_was_changed_is_sent() -> None:
    form = project_form.form_of(PROJECT)
    form.values |= {"quota_gpus": "4", "limit_gpus": "", "weight": "", "idle_timeout": "1 h"}
    form.values["over_quota"] = ""
    assert project_form.changes_of(form, PROJECT) == {
        "quota": {"gpus": 4.0},
        "limit": {"gpus": None},
        "weight": None,
        "over_quota": False,
        "interactive": {"idle_timeout_seconds": 3600.0},
    }
    assert not form.refused


def test_limits_of_trainings_and_what_holds_at_once() -> None:
    form = project_form.form_of(PROJECT)
    assert form.value("training_idle") == "2 h"
    form.values |= {"training_idle": "", "training_time_limit": "7 d"}
    form.values |= {"workspaces_at_once": "on", "trainings_at_once": ""}
    assert project_form.changes_of(form, PROJECT) == {
        "interactive": {"apply_to_running": True},
        "training": {
            "idle_gpu_seconds": None,
            "time_limit_seconds": 604_800.0,
            "apply_to_running": False,
        },
    }
    assert not form.refused


def test_an_emptied_warning_keeps_the_usual_one() -> None:
    form = project_form.form_of(PROJECT)
    form.values["warning"] = ""
    assert project_form.rules_of(form)["interactive"]["warn_before_seconds"] == 600.0


def test_every_field_of_the_form_can_hold_the_apis_objection() -> None:
    names = set(project_form.form_of(PROJECT).values)
    assert names == set(project_form.FIELDS.values())
