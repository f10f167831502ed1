"""Wire and stored objects say the same."""

from typing import Any

import pytest
from pydantic import ValidationError

from carrel_scheduler.api import convert
from carrel_scheduler.api.models.projects import ProjectChanges
from carrel_scheduler.api.models.validators import read, read_changes
from carrel_scheduler.api.models.workloads import ReportIn
from carrel_scheduler.api.principals.identity import USE, Principal
from carrel_schema.answers import ProjectCreate
from carrel_schema.objects import InteractiveLimits, Project, Quota, TrainingLimits
from carrel_schema.wire import WorkloadCreate

ADA = Principal("ada", "user", frozenset(), frozenset({USE}))


def create(**fields: Any) -> Any:
    body = read(WorkloadCreate, {"name": "a", "project": "p", "command": ["x"], **fields})
    return convert.to_workload(body, ADA, name="a", uid="u", now=5.0)


@pytest.mark.parametrize(
    ("fields", "priority", "preemptible"),
    [
        ({}, "train", True),
        ({"preemptible": False}, "train", False),
        ({"kind": "workspace"}, "build", False),
        ({"kind": "workspace", "preemptible": True}, "build-preemptible", True),
        ({"priority": 0}, 0, True),
        ({"priority": "high"}, "high", True),
    ],
)
def test_what_is_left_to_the_kind_is_filled_in(
    fields: dict[str, Any], priority: str | int, preemptible: bool
) -> None:
    spec = create(**fields).spec
    assert (spec.priority, spec.preemptible) == (priority, preemptible)


def test_memory_of_a_gpu_is_asked_for_in_its_place() -> None:
    workload = create(gpu_memory_bytes=5 * 2**30 + 1)
    assert workload.spec.resources.gpu_memory_mib == 5121, "never less than asked"
    shown = convert.workload_fields(workload, workload.status)["spec"]
    assert (shown.gpus, shown.gpu_memory_bytes) == (0, 5121 * 2**20)
    for beside in ({"gpus": 0.5}, {"mig_profile": "1g.10gb"}):
        with pytest.raises(ValidationError, match="gpu_memory_bytes"):
            create(gpu_memory_bytes=2**30, **beside)


@pytest.mark.parametrize("asked", [True, False])
def test_large_shared_memory_is_kept_and_shown(asked: bool) -> None:
    workload = create(large_shm=asked)
    assert workload.spec.large_shm is asked
    assert convert.workload_fields(workload, workload.status)["spec"].large_shm is asked


def test_gpus_are_thousandths_inside() -> None:
    workload = create(gpus=3)
    assert workload.spec.resources.gpu_milli == 3000
    shown = convert.workload_fields(workload, workload.status)
    assert shown["spec"].gpus == 3.0
    assert (workload.meta.created_by, workload.spec.user, workload.status.queued_at) == (
        "ada",
        "ada",
        5.0,
    )


def project(**fields: Any) -> Project:
    asked = read(ProjectCreate, {"name": "vision", **fields})
    return convert.to_project(asked, ADA, color=3, now=5.0)


def test_a_project_goes_there_and_back() -> None:
    made = project(quota={"gpus": 2, "memory_bytes": 5}, rank=2, weight=7)
    assert made.spec.quota == Quota(gpu_milli=2000, memory_bytes=5)
    assert made.spec.limit == Quota(gpu_milli=None)
    assert (made.spec.members_group, made.spec.color) == ("project-vision", 3)
    shown = convert.project_out(made, None)
    assert (shown.quota.gpus, shown.limit.gpus, shown.weight, shown.rank) == (2.0, None, 7, 2)
    assert shown.use.gpus_allocated == 0


def test_a_patch_changes_what_it_names_and_nothing_else() -> None:
    made = project(quota={"gpus": 2, "cpu_millicores": 9}, description="x", weight=7)
    body = b'{"quota": {"gpus": 4}, "weight": null, "interactive": {"max_extensions": 2}}'
    patch = read_changes(ProjectChanges, body)
    complete = convert.patched(made.spec, patch)
    spec = convert.to_project_spec(complete, made.spec.members_group, made.spec.color)
    assert spec.quota == Quota(gpu_milli=4000, cpu_milli=9)
    assert (spec.description, spec.weight, spec.color) == ("x", None, 3)
    assert spec.interactive == InteractiveLimits(max_extensions=2)


def test_limits_of_trainings_go_there_and_back() -> None:
    limits = {"idle_gpu_seconds": 7200.0, "time_limit_seconds": 60.0, "apply_to_running": True}
    made = project(training=limits)
    assert made.spec.training == TrainingLimits(
        idle_gpu_seconds=7200.0, time_limit_seconds=60.0, apply_to_running=True
    )
    assert convert.project_out(made, None).training == made.spec.training
    patch = read_changes(ProjectChanges, b'{"training": {"time_limit_seconds": null}}')
    complete = convert.patched(made.spec, patch)
    spec = convert.to_project_spec(complete, made.spec.members_group, made.spec.color)
    assert spec.training == TrainingLimits(idle_gpu_seconds=7200.0, apply_to_running=True)


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_training_is_given_some_time(seconds: float) -> None:
    with pytest.raises(ValidationError, match=r"training\.idle_gpu_seconds"):
        project(training={"idle_gpu_seconds": seconds})


def test_null_in_a_patch_means_no_bound() -> None:
    made = project(limit={"gpus": 3}, interactive={"busy_cap_seconds": 60})
    patch = read_changes(
        ProjectChanges, b'{"limit": {"gpus": null}, "interactive": {"busy_cap_seconds": null}}'
    )
    complete = convert.patched(made.spec, patch)
    assert (complete.limit.gpus, complete.interactive.busy_cap_seconds) == (None, None)


def test_a_patch_is_checked_together_with_what_stays() -> None:
    made = project(quota={"gpus": 2})
    patch = read_changes(ProjectChanges, b'{"limit": {"gpus": 1}}')
    with pytest.raises(ValidationError, match=r"limit\.gpus"):
        convert.patched(made.spec, patch)


def test_a_report_without_a_time_is_of_now() -> None:
    assert convert.to_report(ReportIn(step=3, metrics={"loss": 0.5}), 9.0).at == 9.0
    assert convert.to_report(ReportIn(at=4.0), 9.0).at == 4.0
