"""Objects as manifests and back: nothing is lost, and what is written is what a person would."""

from typing import Any

import msgspec
import pytest

from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_scheduler.ledger.resources import codec, kinds
from carrel_scheduler.ledger.resources.codec import StoredResource
from carrel_schema import sections
from carrel_schema.objects import (
    Department,
    DepartmentSpec,
    InteractiveLimits,
    Meta,
    Object,
    ObjectT,
    Preemption,
    Project,
    ProjectSpec,
    Quota,
    ReasonInfo,
    Resources,
    TaskInfo,
    Workload,
    WorkloadSpec,
)

FULL = Workload(
    meta=Meta(
        name="digits",
        project="vision",
        uid="u1",
        created_at=1_790_000_000.25,
        created_by="ada",
        labels={"team": "a", "carrel.dev/uid": "mine", "free text": '"7" & more'},
    ),
    spec=WorkloadSpec(
        kind="experiment",
        user="ada@example.org",
        command=["python", "train.py"],
        environment={"EPOCHS": "20"},
        files={"train.py": "π = 3"},
        volumes=[("/data", "/mnt"), ("/more", "")],
        resources=Resources(
            gpu_milli=250, gpu_memory_mib=5000, cpu_milli=1500, memory_bytes=3 * 2**30
        ),
        priority=70,
        grace_seconds=12.5,
        routes=[sections.Route(port=80, name="app")],
        experiment=sections.ExperimentSpec(
            parameters={
                "lr": sections.Parameter(type="float", low=1e-4, high=1.0, log=True),
                "kind": sections.Parameter(type="categorical", choices=("a", 1, None, True)),
            }
        ),
    ),
)


def stored(obj: Object) -> StoredResource:
    """As the API server would give it back."""
    manifest = codec.manifest(obj)
    metadata = manifest["metadata"]
    metadata |= {"uid": "k", "resourceVersion": "12", "generation": 3}
    metadata |= {"creationTimestamp": "2026-11-21T23:22:59Z"}
    body = {**manifest, "status": codec.status(obj)}
    return msgspec.json.decode(msgspec.json.encode(body), type=StoredResource)


def back(obj: ObjectT) -> ObjectT:
    read = codec.read(type(obj), stored(obj))
    assert (read.meta.resource_version, read.meta.generation) == (12, 3)
    read.meta.resource_version, read.meta.generation = 0, 0
    return read


def test_everything_comes_back() -> None:
    FULL.status.phase = "preempting"
    FULL.status.reason = ReasonInfo(token="Reclaimed", data={"nodes": ["a"], "n": 1.5})
    FULL.status.tasks = [TaskInfo(index=0, attempt=2, node="n", devices=(1, 3), ports={"app": 9})]
    FULL.status.metrics = {"loss": 0.1 + 0.2}
    FULL.status.last_preemption = Preemption(
        at=0.1 + 0.2, rule="reclaim", for_project="p", for_workload="w"
    )
    assert back(FULL) == FULL


@pytest.mark.parametrize("kind", kinds.WORK)
def test_every_kind_says_what_it_is(kind: Any) -> None:
    obj = Workload(meta=Meta(name="n", project="p", uid="u"), spec=WorkloadSpec(kind=kind))
    assert codec.manifest(obj)["kind"] == kinds.WORK[kind].resource.kind
    assert back(obj).spec.kind == kind


def test_a_project_keeps_the_absence_of_bounds() -> None:
    project = Project(
        meta=Meta(name="p", uid="u", created_at=1.0),
        spec=ProjectSpec(
            quota=Quota(gpu_milli=None, cpu_milli=500, memory_bytes=10**9),
            limit=Quota(gpu_milli=4000),
            interactive=InteractiveLimits(busy_cap_seconds=None),
        ),
    )
    assert back(project) == project
    assert codec.specification(project)["quota"] == {
        "gpus": None,
        "cpu": "500m",
        "memory": "1000000000",
    }
    department = Department(meta=Meta(name="d", uid="u", created_at=1.0), spec=DepartmentSpec())
    assert back(department) == department
    assert codec.specification(department) == {}


def test_what_is_written_is_short() -> None:
    workload = Workload(
        meta=Meta(name="n", project="p", uid="u"),
        spec=WorkloadSpec(user="ada", command=["true"], resources=Resources(gpu_milli=2000)),
    )
    assert codec.specification(workload) == {
        "user": "ada",
        "command": ["true"],
        "resources": {"gpus": 2, "cpu": "100m", "memory": "1Gi"},
    }


def test_labels_of_ours_cannot_be_taken() -> None:
    labels = codec.labels(FULL)
    assert labels["carrel.dev/uid"] == "u1"
    assert labels["team"] == "a"
    assert "free text" not in labels
    assert "carrel.dev/user" not in labels  # an address is no label


def test_a_deletion_by_hand_asks_for_the_end() -> None:
    found = stored(FULL)
    found.metadata = msgspec.structs.replace(
        found.metadata, deletion_timestamp="2026-11-21T23:22:59Z"
    )
    assert codec.read(Workload, found).spec.delete


@pytest.mark.parametrize(
    ("spec", "field"),
    [(b'{"tasks": "two"}', "tasks"), (b'{"resources": {"memory": "8 GB"}}', "memory")],
)
def test_what_no_definition_lets_in_is_named(spec: bytes, field: str) -> None:
    found = stored(FULL)
    found.spec = msgspec.Raw(spec)
    with pytest.raises(InvalidArgument, match=field):
        codec.read(Workload, found)
