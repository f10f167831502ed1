"""From tasks to pods: what is in the manifest, and what is refused with field and value."""

import base64
import dataclasses
import json
from typing import Any

import pytest

from carrel_scheduler.engines.contract import EngineError, RegistryLogin, TaskId, TaskSpec
from carrel_scheduler.engines.kubernetes.pods.types import ObjectMeta, PodResourceClaim, PodSpec
from carrel_scheduler.engines.kubernetes.tasks import environment
from carrel_scheduler.engines.kubernetes.tasks.manifest import pod
from carrel_scheduler.engines.kubernetes.tasks.settings import FINALIZER, PodSettings
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod, known_gpus, labels
from carrel_schema import names
from carrel_schema.governance.people import PosixIdentity
from carrel_schema.names import label

SETTINGS = PodSettings(image="trainer:1")


def a_task(**fields: Any) -> TaskSpec:
    defaults: dict[str, Any] = {
        "id": TaskId("u1", 0, 2),
        "name": "digits",
        "project": "vision",
        "user": "ada",
        "node": "n1",
        "command": ("python3", "train.py"),
        "cpu_milli": 500,
        "memory_mib": 2048,
    }
    return TaskSpec(**{**defaults, **fields})


def spec_of(task: TaskSpec, settings: PodSettings = SETTINGS) -> Any:
    return pod(task, settings)["spec"]


def container_of(task: TaskSpec) -> Any:
    return spec_of(task)["containers"][0]


def shown(task: TaskSpec) -> dict[str, str]:
    return {one["name"]: one.get("value", "?") for one in container_of(task)["env"]}


def mounts(task: TaskSpec) -> dict[str, str]:
    return {one["mountPath"]: one.get("subPath", "") for one in container_of(task)["volumeMounts"]}


def test_the_pod_is_named_by_the_task_and_kept_until_its_end_is_seen() -> None:
    made = pod(a_task(), SETTINGS, {"kind": "Training", "uid": "k1"})
    meta = made["metadata"]
    assert (meta["name"], meta["namespace"]) == ("u1-0-2", "carrel-vision")
    assert meta["finalizers"] == [FINALIZER]
    assert meta["ownerReferences"] == [{"kind": "Training", "uid": "k1"}]
    assert meta["labels"][names.TASK] == "u1-0-2"
    assert made["spec"]["schedulerName"] == "carrel"
    assert made["spec"]["restartPolicy"] == "Never"
    assert "nodeName" not in made["spec"]


def test_an_instance_is_asked_for_by_the_name_that_nodes_offer_it_by() -> None:
    asked = container_of(a_task(mig_profile="1g.10gb+me"))["resources"]
    assert asked["limits"]["nvidia.com/mig-1g.10gb.me"] == "1"
    assert asked["requests"]["nvidia.com/mig-1g.10gb.me"] == "1"
    assert "nvidia.com/gpu" not in asked["limits"]


def test_an_instance_that_its_node_gives_is_not_hidden_from_it() -> None:
    told = shown(a_task(mig_profile="1g.10gb"))
    assert not {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"} & told.keys()


def test_a_share_is_asked_for_by_a_name_that_no_node_offers() -> None:
    asked = container_of(a_task(gpu_milli=500, devices=(0,)))["resources"]
    assert asked["limits"]["carrel.dev/gpu-share"] == asked["requests"]["carrel.dev/gpu-share"]
    assert not any("nvidia" in name for name in asked["limits"])
    assert "carrel.dev/gpu-share" not in container_of(a_task())["resources"]["limits"]


def test_nothing_of_the_platform_is_in_reach() -> None:
    spec = spec_of(a_task())
    assert spec["automountServiceAccountToken"] is False
    security = spec["securityContext"]
    assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 1000)
    assert security["seccompProfile"] == {"type": "RuntimeDefault"}
    inside = spec["containers"][0]["securityContext"]
    assert inside == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def test_numbers_of_the_directory_are_those_of_the_pod() -> None:
    posix = PosixIdentity(uid=2001, gid=3001, gids=(3002,))
    security = spec_of(a_task(posix=posix))["securityContext"]
    assert (security["runAsUser"], security["runAsGroup"]) == (2001, 3001)
    assert (security["fsGroup"], security["supplementalGroups"]) == (3001, [3002])
    for uid, gid in ((0, 3001), (2001, 0), (1000, 3001)):
        with pytest.raises(EngineError, match="numbers of the directory"):
            spec_of(a_task(posix=PosixIdentity(uid=uid, gid=gid)))


def test_resources_and_image() -> None:
    task = a_task(devices=(3, 5), gpu_milli=2000, cpu_limit_milli=1500)
    made = container_of(task)
    assert made["image"] == "trainer:1"
    assert container_of(a_task(image="mine:2"))["image"] == "mine:2"
    resources = made["resources"]
    assert resources["requests"] == {"cpu": "500m", "memory": "2048Mi", "nvidia.com/gpu": "2"}
    assert resources["limits"] == {"cpu": "1500m", "memory": "2048Mi", "nvidia.com/gpu": "2"}
    assert "CUDA_VISIBLE_DEVICES" not in shown(task), "the device plugin says which"
    assert shown(a_task())["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert shown(task)["OMP_NUM_THREADS"] == "2"


def test_nobody_chooses_the_gpus_that_a_task_sees() -> None:
    chosen = {"NVIDIA_VISIBLE_DEVICES": "all"}
    for whom in ({"environment": chosen}, {"secret_environment": chosen}):
        whole = a_task(devices=(0,), gpu_milli=1000, **whom)
        names = [one["name"] for one in container_of(whole)["env"]]
        assert "NVIDIA_VISIBLE_DEVICES" not in names, "the device plugin says it"
        none = {one["name"]: one.get("value") for one in container_of(a_task(**whom))["env"]}
        assert none["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_a_share_is_told_its_gpu_when_it_is_bound() -> None:
    chosen = {"NVIDIA_VISIBLE_DEVICES": "all", "CARREL_GPU_MEMORY_MIB": "9"}
    task = a_task(
        devices=(3,), gpu_milli=250, environment=chosen, secret_environment={**chosen, "A": "b"}
    )
    made = container_of(task)
    assert "nvidia.com/gpu" not in made["resources"]["limits"]
    told = {one["name"]: one for one in made["env"]}
    assert len(told) == len(made["env"]), "each variable once"
    path = told["NVIDIA_VISIBLE_DEVICES"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.annotations['carrel.dev/gpu-uuids']"
    path = told["CARREL_GPU_MEMORY_MIB"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.annotations['carrel.dev/gpu-memory-mib']"
    assert told["CARREL_GPU_SHARE"]["value"] == "0.25"
    assert "CUDA_VISIBLE_DEVICES" not in told
    assert environment.secret_variables(task) == {"A": "b"}


def test_a_share_is_limited_by_files_that_it_cannot_change() -> None:
    task = a_task(devices=(3,), gpu_milli=250)
    settings = dataclasses.replace(SETTINGS, gpu_image="carrel:1")
    (preparing,) = pod(task, settings)["spec"]["initContainers"]
    assert preparing["image"] == "carrel:1"
    assert preparing["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    seen = {one["mountPath"]: one for one in container_of(task)["volumeMounts"]}
    assert seen["/etc/ld.so.preload"]["readOnly"]
    assert seen["/dev/carrel-gpu/limits"]["readOnly"]
    assert "readOnly" not in seen["/dev/carrel-gpu/usage"]
    off = dataclasses.replace(SETTINGS, limits_gpu_memory=False)
    spec = pod(task, off)["spec"]
    assert "initContainers" not in spec
    assert not [one for one in spec["volumes"] if one["name"] == "carrel-gpu"]
    assert "initContainers" not in spec_of(a_task(devices=(3,), gpu_milli=1000))


def test_kubernetes_finds_nothing_to_fill_in() -> None:
    task = a_task(command=("bash", "-c", "kill $$; echo $(date)"), environment={"A": "$(B)"})
    assert container_of(task)["command"][-1] == "kill $$$$; echo $$(date)"
    assert shown(task)["A"] == "$$(B)"


def test_the_tasks_folder_is_filled_in() -> None:
    task = a_task(environment={"HOSTS": "$(CARREL_TASK_DIR)/hostfile"})
    assert shown(task)["HOSTS"] == "/carrel/work/hostfile"


def test_secrets_and_files_are_in_the_secret_alone() -> None:
    task = a_task(
        secret_environment={"TOKEN": "s3cret"},
        environment={"TOKEN": "no", "COLOR": "red"},
        files={"conf/a.txt": "grüße"},
    )
    assert "s3cret" not in str(pod(task, SETTINGS))
    found = environment.payload_secret(task, "pod-uid")
    assert found is not None
    assert found["metadata"]["ownerReferences"][0]["uid"] == "pod-uid"
    data = {key: base64.b64decode(text).decode() for key, text in found["data"].items()}
    assert data == {"variable-0": "s3cret", "file-0": "grüße"}
    token = next(one for one in container_of(task)["env"] if one["name"] == "TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": "u1-0-2", "key": "variable-0"}
    volumes = {one["name"]: one for one in spec_of(task)["volumes"]}
    items = volumes["given"]["secret"]["items"]
    assert items == [{"key": "file-0", "path": "files/conf/a.txt"}]
    assert environment.payload_secret(a_task(), "pod-uid") is None


def test_registry_credentials_are_a_secret_of_the_pod_for_its_own_image() -> None:
    login = RegistryLogin(server="docker.io", username="ada", password="s3cret")
    task = a_task(image="team/tool", registry_logins=(login,))
    assert "s3cret" not in str(pod(task, SETTINGS))
    assert spec_of(task)["imagePullSecrets"] == [{"name": "u1-0-2-registry"}]
    found = environment.pull_secret(task, "pod-uid")
    assert found is not None
    assert found["metadata"]["ownerReferences"][0]["uid"] == "pod-uid"
    assert found["type"] == "kubernetes.io/dockerconfigjson"
    told = json.loads(base64.b64decode(found["data"][".dockerconfigjson"]))
    known = {"username": "ada", "password": "s3cret"}
    assert told == {"auths": {"https://index.docker.io/v1/": known}}
    ours = a_task(image="", registry_logins=(login,))
    assert environment.pull_secret(ours, "pod-uid") is None
    assert spec_of(ours)["imagePullSecrets"] == []


def test_secret_variables_replace_none_of_the_engines_own() -> None:
    task = a_task(secret_environment={"CARREL_TASK_ID": "forged", "USER": "root"})
    assert shown(task)["CARREL_TASK_ID"] == "u1-0-2"
    assert environment.payload_secret(task, "") is None


def test_storage_shows_its_own_part_and_what_may_be_read() -> None:
    task = a_task(events="u1", reads_events=("u7/3",))
    found = mounts(task)
    assert found["/carrel/checkpoints"] == "checkpoints/u1"
    assert found["/carrel/events/u1"] == "events/u1"
    assert found["/carrel/events/u7/3"] == "events/u7/3"
    read_only = [one for one in container_of(task)["volumeMounts"] if one.get("readOnly")]
    assert [one["mountPath"] for one in read_only] == ["/carrel/events/u7/3"]
    assert shown(task)["CARREL_EVENTS_DIR"] == "/carrel/events/u1"


def test_checkpoints_of_the_work_before_may_be_read() -> None:
    task = a_task(continues="u0")
    assert mounts(task)["/carrel/before"] == "checkpoints/u0"
    read_only = [one for one in container_of(task)["volumeMounts"] if one.get("readOnly")]
    assert [one["mountPath"] for one in read_only] == ["/carrel/before"]
    assert shown(task)["CARREL_CONTINUE_FROM"] == "/carrel/before"
    assert "CARREL_CONTINUE_FROM" not in shown(a_task())


def test_volumes_are_claims_of_the_project() -> None:
    task = a_task(volumes=(("data", "sets"), ("data/raw/x", "/mnt/raw")))
    found = mounts(task)
    assert (found["/carrel/work/sets"], found["/mnt/raw"]) == ("", "raw/x")
    claims = [one["persistentVolumeClaim"] for one in spec_of(task)["volumes"][-2:]]
    assert claims == [{"claimName": "carrel-checkpoints"}, {"claimName": "data"}]


def test_large_shared_memory_counts_towards_the_limit() -> None:
    volumes = {one["name"]: one for one in spec_of(a_task(large_shm=True))["volumes"]}
    assert volumes["shm"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "2048Mi"}
    assert "/dev/shm" not in mounts(a_task())


def test_members_of_a_gang_have_names() -> None:
    spec = spec_of(a_task(hostname="digits-1", subdomain="gang-u1"))
    assert (spec["hostname"], spec["subdomain"]) == ("digits-1", "gang-u1")
    assert spec["dnsConfig"]["searches"] == ["gang-u1.carrel-vision.svc.cluster.local"]
    assert "hostname" not in spec_of(a_task())


@pytest.mark.parametrize(("seconds", "whole"), [(0.0, 1), (0.2, 1), (30.0, 30), (30.5, 31)])
def test_grace_periods_are_whole_seconds(seconds: float, whole: int) -> None:
    assert spec_of(a_task(grace_seconds=seconds))["terminationGracePeriodSeconds"] == whole


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"command": ()}, "command"),
        ({"command": ("a\0b",)}, "command"),
        ({"gpu_milli": 1500, "devices": (0,)}, "gpus=1.5"),
        ({"device_uuids": ("a",)}, "device_uuids"),
        ({"files": {"../x": ""}}, "../x"),
        ({"files": {"/etc/x": ""}}, "/etc/x"),
        ({"environment": {"A=B": ""}}, "A=B"),
        ({"environment": {"A": "\0"}}, "'A'"),
        ({"volumes": (("/data", "x"),)}, "/data"),
        ({"volumes": (("data/../y", "x"),)}, r"data/\.\./y"),
        ({"volumes": (("data", "../x"),)}, "'../x'"),
        ({"user": "../x"}, "../x"),
        ({"id": TaskId("Not_A_Name", 0, 0)}, "Not_A_Name"),
    ],
)
def test_what_cannot_be_is_named(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(EngineError, match=named):
        pod(a_task(**fields), SETTINGS)


def test_too_large_files_are_refused_with_their_size() -> None:
    with pytest.raises(EngineError, match="921601 bytes"):
        environment.payload_secret(a_task(files={"big": "x" * (900 * 1024 + 1)}), "")


def test_labels_of_any_text_are_valid_and_tell_apart() -> None:
    assert label("ada") == "ada"
    long, mail = label("x" * 100), label("ada@uni.example")
    assert len(long) <= 63
    assert mail.startswith("ada-uni-example-")
    assert label("ada+uni.example") != mail
    assert labels(a_task(user="ada@uni.example"))[names.USER] == mail


def test_an_instance_that_is_made_for_it_is_told_by_its_binding() -> None:
    task = a_task(mig_profile="1g.10gb", mig_slots=1, devices=(0,))
    made, container = spec_of(task), container_of(task)
    assert not any("nvidia" in name for name in container["resources"]["limits"])
    told = {one["name"]: one["valueFrom"] for one in container["env"] if "valueFrom" in one}
    path = "metadata.annotations['carrel.dev/gpu-uuids']"
    assert told == {"NVIDIA_VISIBLE_DEVICES": {"fieldRef": {"fieldPath": path}}}
    assert "CUDA_VISIBLE_DEVICES" not in shown(task)
    assert "CARREL_GPU_SHARE" not in shown(task)
    assert "initContainers" not in made, "the instance is the limit"
    assert not any(one["name"] == "carrel-gpu" for one in made["volumes"])
    own = a_task(
        mig_profile="1g.10gb",
        mig_slots=1,
        devices=(0,),
        environment={"NVIDIA_VISIBLE_DEVICES": "all"},
        secret_environment={"NVIDIA_VISIBLE_DEVICES": "all"},
    )
    assert [one for one in container_of(own)["env"] if one["name"] == "NVIDIA_VISIBLE_DEVICES"] == [
        one for one in container["env"] if one["name"] == "NVIDIA_VISIBLE_DEVICES"
    ]


def bound(task: TaskId, uuids: str = "", **spec: Any) -> TaskPod:
    annotations = {names.GPU_UUIDS: uuids} if uuids else {}
    meta = ObjectMeta(uid=str(task), labels={names.TASK: str(task)}, annotations=annotations)
    return TaskPod(meta, PodSpec(node_name="n1", **spec))


def test_the_gpus_of_a_workload_are_known_where_those_of_all_its_pods_are() -> None:
    by_claim = {str(TaskId("claims", 0, 0)): frozenset({"GPU-2"})}
    pods = [
        bound(TaskId("share", 0, 0), "GPU-0"),
        bound(TaskId("share", 0, 1), "GPU-1"),
        bound(TaskId("claims", 0, 0)),
        bound(TaskId("partly", 0, 0), "GPU-0"),
        bound(TaskId("partly", 0, 1)),
        bound(TaskId("own-claims", 0, 0), "GPU-0", resource_claims=(PodResourceClaim(name="x"),)),
    ]
    found = known_gpus(pods, lambda uid: by_claim.get(uid, frozenset()))
    assert found == {"n1": {"share": frozenset({"GPU-0", "GPU-1"}), "claims": frozenset({"GPU-2"})}}
