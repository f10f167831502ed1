"""Our definitions on a real API server: taken, validated in words, shown as tables."""

import json
from typing import Any

import msgspec
import pytest
import yaml

from carrel_scheduler.ledger.resources import codec, kinds
from carrel_schema.objects import Meta, Workload, WorkloadSpec
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import DEPLOY, MARKS, ApiUser, Kubectl, kubectl, make_namespace, ours, trial, until

__all__ = ["kubectl", "ours", "trial"]

pytestmark = MARKS
NAMESPACE = "carrel-kinds"

TRAINING = """
apiVersion: carrel.dev/v1alpha1
kind: Training
metadata: {name: digits}
spec:
  user: ada
  command: [python, train.py]
  environment: {EPOCHS: "20"}
  resources: {gpus: 0.5, cpu: 2, memory: 8Gi}
  priority: high
"""
MINIMAL: dict[str, dict[str, Any]] = {
    "Training": {"command": ["true"]},
    "Workspace": {"command": ["jupyter"]},
    "DistributedTraining": {"command": ["true"], "tasks": 4, "elastic": {"minTasks": 2}},
    "Experiment": {
        "command": ["true"],
        "experiment": {"parameters": {"lr": {"type": "float", "low": 0.1, "high": 1}}},
    },
    "Trial": {"command": ["true"], "trial": {"number": 1, "parameters": {"lr": 0.2}}},
    "InferenceEndpoint": {"command": ["serve"], "inference": {"maxReplicas": 3}},
    "Replica": {"command": ["serve"]},
    "NotebookJob": {"notebook": {"path": "report.ipynb"}},
    "Schedule": {"schedule": {"cron": "0 3 * * *"}, "notebook": {"path": "report.ipynb"}},
    "TensorBoard": {"tensorboard": {"jobs": ["digits"]}},
}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("Training", {"command": []}, "a `command` with at least the program to run"),
    (
        "Training",
        {"command": ["x"], "resources": {"gpus": 1.5}},
        "a share of one GPU in hundredths",
    ),
    ("Training", {"command": ["x"], "resources": {"gpus": 0.255}}, "a share of one GPU"),
    ("Training", {"command": ["x"], "resources": {"memory": "8 GB"}}, "an amount such as 8Gi"),
    ("Training", {"command": ["x"], "resources": {"cpu": -1}}, "an amount such as 2, 0.5 or 500m"),
    ("Training", {"command": ["x"], "tasks": 0}, "greater than or equal to 1"),
    (
        "Training",
        {"command": ["x"], "tasks": 2, "elastic": {"minTasks": 3}},
        "`elastic.minTasks` not above `tasks`",
    ),
    (
        "Training",
        {"command": ["x"], "tasks": 2, "elastic": {"gpusOfTask": True}},
        "either `elastic.gpusOfTask` for one task",
    ),
    ("Training", {"command": ["x"], "routes": [{}, {}]}, "a `name` of its own for each"),
    ("Training", {"command": ["x"], "restartPolicy": "Always"}, 'supported values: "on-failure"'),
    ("Workspace", {"command": ["x"], "tasks": 2}, "`tasks` 1: a workspace is one task"),
    (
        "Workspace",
        {"command": ["x"], "restartWhenStalled": True},
        "no `restartWhenStalled` or `stallAfterSeconds`: they are for trainings",
    ),
    (
        "Training",
        {"command": ["x"], "restartWhenStalled": True, "restartPolicy": "never"},
        "`restartPolicy` other than `never` with `restartWhenStalled`",
    ),
    ("Training", {"command": ["x"], "stallAfterSeconds": 5}, "greater than or equal to 60"),
    (
        "InferenceEndpoint",
        {"command": ["x"], "inference": {"minReplicas": 2}},
        "`minReplicas` not above `maxReplicas`",
    ),
    (
        "InferenceEndpoint",
        {"command": ["x"], "inference": {}, "routes": [{"port": 80}]},
        "`port` 0: each replica has a port of its own",
    ),
    (
        "Experiment",
        {"command": ["x"], "experiment": {"parameters": {"a": {"type": "int", "low": 2}}}},
        "`low` and `high` with low <= high",
    ),
    ("Experiment", {"command": ["x"], "experiment": {"sampler": "grid"}}, "a grid needs them"),
    ("Schedule", {"schedule": {"cron": "hourly"}}, "five fields: minute, hour, day of month"),
    ("Schedule", {"schedule": {"cron": "0 3 * * *"}}, "`notebook` for a schedule whose runs are"),
    ("NotebookJob", {}, "notebook: Required value"),
]


@pytest.fixture(scope="module")
def namespace(ours: ControlPlane) -> str:
    make_namespace(ours, NAMESPACE)
    return NAMESPACE


def manifest(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "carrel.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"user": "ada", **spec},
    }


def test_definitions_are_taken_whole(ours: ControlPlane) -> None:
    for named in kinds.ALL:
        name = f"{named.resource.plural}.carrel.dev"
        found = ours.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}")
        states = {
            one["type"]: (one["status"], one["message"]) for one in found["status"]["conditions"]
        }
        assert states["Established"][0] == "True"
        assert "NonStructuralSchema" not in states, states


def test_what_a_person_writes_is_taken(namespace: str, kubectl: Kubectl) -> None:
    kubectl("apply", "-n", namespace, "-f", "-", given=TRAINING)
    found = json.loads(kubectl("get", "training", "digits", "-n", namespace, "-o", "json"))
    assert found["spec"] == yaml.safe_load(TRAINING)["spec"]
    spec = codec.read(Workload, codec_input(found)).spec
    assert (spec.resources.gpu_milli, spec.resources.cpu_milli) == (500, 2000)
    assert spec.resources.memory_bytes == 8 * 1024**3
    assert (spec.kind, spec.user, spec.environment) == ("training", "ada", {"EPOCHS": "20"})


def codec_input(found: dict[str, Any]) -> codec.StoredResource:
    return msgspec.json.decode(json.dumps(found).encode(), type=codec.StoredResource)


def test_every_kind_is_taken(namespace: str, kubectl: Kubectl) -> None:
    assert set(MINIMAL) == {named.resource.kind for named in kinds.WORK.values()}
    manifests = [manifest(kind, f"least-{kind.lower()}", spec) for kind, spec in MINIMAL.items()]
    told = kubectl.apply(*manifests)
    assert told.code == 0, told.error
    listed = kubectl("get", "carrel", "-n", namespace, "-o", "name").split()
    assert {f"{one['kind'].lower()}.carrel.dev/{one['metadata']['name']}" for one in manifests} <= {
        *listed
    }


@pytest.mark.parametrize("kind", ["Training", "DistributedTraining", "Workspace"])
@pytest.mark.usefixtures("namespace")
def test_a_rule_for_stalls_may_be_left_open(trial: ApiUser, kind: str) -> None:
    spec = {"command": ["x"], "restartWhenStalled": None, "stallAfterSeconds": None}
    told = trial.create(manifest(kind, "open", spec))
    assert told.code == 0, told.error


@pytest.mark.parametrize(("kind", "spec", "sentence"), REFUSED)
@pytest.mark.usefixtures("namespace")
def test_what_cannot_be_is_refused_in_words(
    trial: ApiUser, kind: str, spec: dict[str, Any], sentence: str
) -> None:
    told = trial.create(manifest(kind, "wrong", spec))
    assert told.code != 0
    assert sentence in told.error


def test_a_quota_of_gpus_has_two_decimals(trial: ApiUser) -> None:
    for gpus in (0, 0.29, 2.5, 3, 0.125):
        project = {
            "apiVersion": "carrel.dev/v1alpha1",
            "kind": "Project",
            "metadata": {"name": "decimals"},
            "spec": {"quota": {"gpus": gpus}},
        }
        told = trial.create(project)
        assert (told.code == 0) == (gpus != 0.125), told.error
        assert told.code == 0 or "at most two decimals, as 2.5" in told.error


def test_unknown_fields_are_told(namespace: str, kubectl: Kubectl) -> None:
    told = kubectl.apply(manifest("Training", "typo", {"command": ["x"], "comand": ["y"]}))
    assert told.code != 0
    assert 'unknown field "comand"' in told.error


def test_whose_it_is_stays(namespace: str, kubectl: Kubectl) -> None:
    kubectl.apply(manifest("Training", "mine", {"command": ["x"]}))
    told = kubectl.apply(manifest("Training", "mine", {"command": ["x"], "user": "bob"}))
    assert "stays what it was; make a new object instead" in told.error


def test_limits_hold_quotas(trial: ApiUser) -> None:
    project = {
        "apiVersion": "carrel.dev/v1alpha1",
        "kind": "Project",
        "metadata": {"name": "vision"},
        "spec": {"quota": {"gpus": 4}, "limit": {"gpus": 2}},
    }
    told = trial.create(project)
    assert "`limit.gpus` of at least `quota.gpus`" in told.error


@pytest.mark.parametrize("kind", ["Project", "Department"])
def test_quotas_in_node_groups_are_part_of_the_quota(kind: str, trial: ApiUser) -> None:
    def told(quota: object, **groups: float) -> str:
        spec = {"quota": quota, "nodeGroupQuotas": groups}
        one = {"apiVersion": "carrel.dev/v1alpha1", "kind": kind, "metadata": {"name": "vision"}}
        return trial.create(one | {"spec": spec}).error

    words = "`nodeGroupQuotas` of at most `quota.gpus` in all"
    assert words in told({"gpus": 4}, a100=3, h100=1.01)
    assert told({"gpus": 4}, a100=2.5, h100=1.5) == ""
    assert told({"gpus": None}, a100=3) == ""
    assert "nodeGroupQuotas.a100" in told({"gpus": 4}, a100=-1)


def test_tables_read_like_those_of_the_command_line(
    namespace: str, ours: ControlPlane, kubectl: Kubectl
) -> None:
    kubectl("apply", "-n", namespace, "-f", "-", given=TRAINING)
    path = f"/apis/carrel.dev/v1alpha1/namespaces/{namespace}/trainings/digits"
    found = ours.get(path)
    meta = Meta(name="digits", created_at=1.0, generation=found["metadata"]["generation"])
    workload = Workload(meta=meta, spec=WorkloadSpec(user="ada", command=["x"]))
    workload.status.phase = "running"
    ours.ask("PUT", f"{path}/status", {**found, "status": codec.status(workload)})
    head, *rows = kubectl("get", "tr", "-n", namespace).splitlines()
    assert head.split("  ")[0] == "NAME"
    for column in ("STATUS", "AGE", "NODE", "USER", "GPUS ALLOCATED (REQUESTED)"):
        assert column in head
    (row,) = [row for row in rows if row.startswith("digits")]
    assert row.split()[1] == "Running"
    waited = kubectl("wait", "--for=condition=Running", "training/digits", "-n", namespace)
    assert "condition met" in waited


def test_explain_tells_what_fields_mean(ours: ControlPlane, kubectl: Kubectl) -> None:
    asked, words = ("explain", "training.spec.resources.gpus"), "a share of one in hundredths"
    until(lambda: words in kubectl.run(*asked).out, "explanation")  # of schemas, made afterwards


def test_the_definitions_lie_where_they_are_deployed_from() -> None:
    listed = yaml.safe_load((DEPLOY / "crds" / "kustomization.yaml").read_text())["resources"]
    assert len(listed) == len(kinds.ALL)
