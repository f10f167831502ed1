"""What a place cannot run is told at submission, with the field that is in the way."""

import os
from functools import partial
from typing import Any

import pytest

from carrel_scheduler.core.mig import model_of
from carrel_scheduler.engines.kubernetes.tasks.manifest import check_runnable
from carrel_scheduler.engines.kubernetes.tasks.settings import PodSettings
from carrel_scheduler.workloads.launch import fitting
from carrel_schema.objects import Meta, Resources, Workload, WorkloadSpec
from carrel_schema.sections import Elastic

ON_CLUSTER = fitting.on_cluster(partial(check_runnable, settings=PodSettings(image="trainer")))

DIVIDED = model_of("A100-80GB")


def work(name: str = "x", **fields: Any) -> Workload:
    spec = WorkloadSpec(user="ada", **{"kind": "training", "command": ["true"], **fields})
    return Workload(meta=Meta(name=name, project="vision", uid="u1"), spec=spec)


@pytest.mark.parametrize(
    ("fields", "code", "field"),
    [
        ({"resources": Resources(gpu_milli=1500)}, "bad_gpu_share", "gpus"),
        ({"resources": Resources(mig_profile="half")}, "bad_mig_profile", "mig_profile"),
        (
            {"resources": Resources(gpu_milli=1000, mig_profile="1g.10gb")},
            "mig_and_gpus",
            "mig_profile",
        ),
        ({"volumes": [("data", ""), ("/data", "x")]}, "bad_path", "volumes.1.source"),
        ({"volumes": [("data", "../x")]}, "bad_path", "volumes.0.destination"),
        ({"volumes": [("a", "x"), ("b", "x")]}, "bad_path", "volumes.1.destination"),
        ({"volumes": [("data", "/tmp")]}, "bad_path", "volumes.0.destination"),
        ({"volumes": [("carrel-checkpoints/x", "")]}, "bad_path", "volumes.0.source"),
        ({"files": {"big": "x" * 1_000_000}}, "files_too_large", "files"),
        ({"name": "x" * 62, "kind": "distributed", "tasks": 2}, "too_long", "name"),
        ({"user": "a/b"}, "bad_name", "user"),
    ],
)
def test_what_no_pod_can_be(fields: dict[str, Any], code: str, field: str) -> None:
    user = fields.pop("user", "ada")
    wanted = work(**fields)
    wanted.spec.user = user
    found = ON_CLUSTER(wanted)
    assert found is not None
    assert (found.code, found.field) == (code, field)
    assert found.expected


@pytest.mark.parametrize(
    ("fields", "value", "right"),
    [
        ({"resources": Resources(mig_profile="5g.40gb")}, "5g.40gb", "`3g.40gb`"),
        ({"resources": Resources(gpu_milli=2000)}, 2.0, "at most 1"),
        ({"resources": Resources(gpu_milli=250, gpu_devices=2)}, 2, "at most 1"),
        (
            {"resources": Resources(gpu_milli=1000), "elastic": Elastic(gpus_of_task=True)},
            1.0,
            "at most 1",
        ),
    ],
)
def test_what_divided_gpus_cannot_be(fields: dict[str, Any], value: object, right: str) -> None:
    found = fitting.on_machine(work(**fields), DIVIDED)
    assert found is not None
    assert (found.code, found.value) == ("no_mig", value)
    assert right in found.expected


@pytest.mark.parametrize("resources", [Resources(mig_profile="3g.40gb"), Resources(gpu_milli=1000)])
def test_what_divided_gpus_can_be(resources: Resources) -> None:
    assert fitting.on_machine(work(resources=resources, tasks=4), DIVIDED) is None


def test_instances_take_gpus_that_are_divided() -> None:
    found = fitting.on_machine(work(resources=Resources(mig_profile="3g.40gb")))
    assert found is not None
    assert "carrel up --mig" in found.expected


def test_what_fits_a_cluster() -> None:
    assert ON_CLUSTER(work(volumes=[("data/raw", "/mnt/raw")], tasks=3)) is None
    assert ON_CLUSTER(work(kind="experiment")) is None
    assert ON_CLUSTER(work(resources=Resources(gpu_milli=500))) is None
    workspace: dict[str, Any] = {"kind": "workspace", "command": [], "external": True}
    assert ON_CLUSTER(work(**workspace)) is None
    assert ON_CLUSTER(work(**workspace, resources=Resources(mig_profile="1g.10gb"))) is None


def test_volumes_of_one_machine_are_its_folders() -> None:
    found = fitting.on_machine(work(volumes=[("data", "x")]))
    assert found is not None
    assert (found.code, found.field) == ("bad_path", "volumes.0.source")
    assert fitting.on_machine(work(volumes=[("/data", "x")])) is None


def test_an_ordinary_account_runs_no_images_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert fitting.on_machine(work(image="pytorch:2")) is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = fitting.on_machine(work(image="pytorch:2"))
    assert found is not None
    assert (found.code, found.field, found.value) == ("no_image", "image", "pytorch:2")
    assert "images need Carrel to run as root" in found.expected
    assert fitting.on_machine(work()) is None
