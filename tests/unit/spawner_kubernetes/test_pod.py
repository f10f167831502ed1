"""The pod that a choice becomes: labels, size, secrets, and the ``restricted`` standard."""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import yaml

from carrel.models import WorkloadStatus
from carrel_schema.governance.people import PosixIdentity
from carrel_schema.names import label
from carrel_spawner.kubernetes import manifests
from carrel_spawner.kubernetes.spawner import CarrelKubeSpawner, is_broken
from carrel_spawner.refusal import WorkspaceRefused
from unit.spawner_kubernetes.pods import TOKEN, manifest, spawner, workload


async def test_the_pod_is_the_task_that_the_scheduler_placed() -> None:
    one = spawner()
    pod = await manifest(one)
    labels = pod["metadata"]["labels"]
    assert {key: value for key, value in labels.items() if key.startswith("carrel.dev/")} == {
        "carrel.dev/project": "vision",
        "carrel.dev/workload": "workspace-ada",
        "carrel.dev/workload-uid": "4f0c",
        "carrel.dev/task": "4f0c-0-0",
        "carrel.dev/task-index": "0",
        "carrel.dev/attempt": "0",
        "carrel.dev/user": "ada",
        "carrel.dev/kind": "workspace",
    }
    assert labels["component"] == "singleuser-server"  # by which KubeSpawner finds it
    assert pod["spec"]["schedulerName"] == "carrel"
    assert pod["spec"]["restartPolicy"] == "Never"
    assert (one.namespace, pod["metadata"]["name"]) == ("carrel-vision", one.pod_name)


async def test_it_gets_what_was_counted_whatever_else_is_configured() -> None:
    one = spawner(
        cpu_guarantee=9,
        mem_limit="99G",
        extra_resource_limits={"nvidia.com/gpu": "8", "rdma/x": "1"},
    )
    given = (await manifest(one))["spec"]["containers"][0]["resources"]
    assert given["requests"]["cpu"] == "1500m"
    assert given["limits"]["memory"] == given["requests"]["memory"] == str(3 * 1024**3)
    assert given["limits"]["nvidia.com/gpu"] == given["requests"]["nvidia.com/gpu"] == "2"
    assert given["limits"]["rdma/x"] == "1"
    none = (await manifest(spawner(), workload(gpus=0.0)))["spec"]["containers"][0]["resources"]
    assert "nvidia.com/gpu" not in {**none["limits"], **none["requests"]}


async def test_a_share_of_a_gpu_is_told_by_its_binding() -> None:
    one = spawner(environment={"NVIDIA_VISIBLE_DEVICES": "all", "CARREL_GPU_SHARE": "1"})
    pod = await manifest(one, workload(gpus=0.5))
    container = pod["spec"]["containers"][0]
    assert "nvidia.com/gpu" not in container["resources"]["limits"]
    told = {given["name"]: given for given in container["env"]}
    path = told["NVIDIA_VISIBLE_DEVICES"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.annotations['carrel.dev/gpu-uuids']"
    assert told["CARREL_GPU_SHARE"]["value"] == "0.5"
    (limiter,) = pod["spec"]["initContainers"]
    assert limiter["image"] == "lab/desk:1"
    assert "/etc/ld.so.preload" in {mount["mountPath"] for mount in container["volumeMounts"]}
    assert "carrel-gpu" in {volume["name"] for volume in pod["spec"]["volumes"]}
    free = await manifest(spawner(limits_gpu_memory=False), workload(gpus=0.5))
    assert not free["spec"].get("initContainers")


async def test_a_mig_instance_is_told_by_its_binding_and_needs_no_limiter() -> None:
    one = spawner(environment={"NVIDIA_VISIBLE_DEVICES": "all"})
    place = {"index": 0, "attempt": 0, "node": "n1", "devices": (0,), "mig_slots": 0b1}
    placed = workload(gpus=0.0, mig_profile="1g.10gb")
    status = msgspec.convert({"tasks": [place]}, WorkloadStatus)
    pod = await manifest(one, msgspec.structs.replace(placed, status=status))
    container = pod["spec"]["containers"][0]
    [told] = [given for given in container["env"] if given["name"] == "NVIDIA_VISIBLE_DEVICES"]
    path = told["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.annotations['carrel.dev/gpu-uuids']"
    assert not any("nvidia" in name for name in container["resources"]["limits"])
    assert not pod["spec"].get("initContainers")


async def test_a_mig_instance_of_its_node_is_asked_for_by_name() -> None:
    """A device plugin gives it, or the claim that is made for the name."""
    one = spawner(environment={"NVIDIA_VISIBLE_DEVICES": "all"})
    pod = await manifest(one, workload(gpus=0.0, mig_profile="1g.10gb+me"))
    container = pod["spec"]["containers"][0]
    for amounts in container["resources"]["limits"], container["resources"]["requests"]:
        asked = {name: count for name, count in amounts.items() if "nvidia" in name}
        assert asked == {"nvidia.com/mig-1g.10gb.me": "1"}
    assert "NVIDIA_VISIBLE_DEVICES" not in {given["name"] for given in container["env"]}


async def test_without_gpus_it_sees_none() -> None:
    container = (await manifest(spawner(), workload(gpus=0.0)))["spec"]["containers"][0]
    shown = {one["name"]: one.get("value") for one in container["env"]}
    assert shown["NVIDIA_VISIBLE_DEVICES"] == "void"
    container = (await manifest(spawner(), workload(gpus=2.0)))["spec"]["containers"][0]
    assert "NVIDIA_VISIBLE_DEVICES" not in {one["name"] for one in container["env"]}


async def test_what_opens_a_door_is_not_in_the_pod() -> None:
    one = spawner(environment={"WANDB_API_KEY": "k-12345", "TEAM": "vision"})
    pod = await manifest(one)
    assert TOKEN not in str(pod)
    assert "k-12345" not in str(pod)
    container = pod["spec"]["containers"][0]
    shown = {one["name"]: one.get("value") for one in container["env"]}
    assert shown["TEAM"] == shown["CARREL_PROJECT"] == "vision"
    assert shown["JUPYTERHUB_API_URL"] == "http://hub:8081/hub/api"
    assert shown["CARREL_URL"] == "http://scheduler:8080/services/carrel"
    assert container["envFrom"] == [{"secretRef": {"name": one.pod_name}}]


async def test_it_meets_the_restricted_standard_and_may_save() -> None:
    spec = (await manifest(spawner(image_pull_secrets=["pull"])))["spec"]
    container = spec["containers"][0]
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["securityContext"]["fsGroup"] == 1000
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert container["securityContext"]["runAsUser"] == 1000
    assert not container["securityContext"].get("privileged")
    assert not spec["automountServiceAccountToken"]
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["imagePullSecrets"] == [{"name": "pull"}]


async def test_its_volumes_are_the_users_and_the_projects() -> None:
    one = spawner()
    pod = await manifest(one)
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["spec"]["volumes"]
    }
    assert claims == {"home": "home-ada", "project": "project"}
    mounts = {one["name"]: one["mountPath"] for one in pod["spec"]["containers"][0]["volumeMounts"]}
    assert mounts == {"home": "/home/carrel", "project": "/home/carrel/project"}
    assert not one.delete_pvc
    alone = await manifest(spawner(project_volume=""))
    assert [volume["name"] for volume in alone["spec"]["volumes"]] == ["home"]


@pytest.mark.parametrize("user", ["ada", "Ada Lovelace", "ada@lab.example", "ünï", "a" * 200])
@pytest.mark.parametrize("server", ["", "gpu-lab"])
async def test_names_are_safe_and_differ(user: str, server: str) -> None:
    pod = await manifest(spawner(user, server))
    name = pod["metadata"]["name"]
    assert len(name) <= 253
    assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name)
    for value in pod["metadata"]["labels"].values():
        assert len(value) <= 63
        assert not value or label(value) == value
    other = await manifest(spawner(user.upper() + "-", server))
    assert other["metadata"]["name"] != name


async def test_the_command_is_the_images_and_not_this_machines() -> None:
    pod = await manifest(spawner())
    args = pod["spec"]["containers"][0]["args"]
    assert args[:5] == ["python", "-m", "carrel_spawner.launch", "--set-up", "--"]
    assert spawner(demo=True).cmd[3:] == ["--set-up", "--demo", "--"]
    environment = {one["name"] for one in pod["spec"]["containers"][0]["env"]}
    assert "PYTHONSTARTUP" not in environment


async def test_a_kind_that_the_admin_offers() -> None:
    big = {"display_name": "Big", "kubespawner_override": {"image": "lab/big:1"}, "default": True}
    one = spawner(profile_list=[{"display_name": "Plain"}, big])
    assert [profile.slug for profile in one.profiles] == ["big", "plain"]
    assert one.checked({"project": "vision"}).profile == "big"
    with pytest.raises(WorkspaceRefused, match="one of big, plain"):
        one.checked({"project": "vision", "profile": "root"})
    one.user_options = {"profile": "big"}
    await one.load_user_options()
    assert (await manifest(one))["spec"]["containers"][0]["image"] == "lab/big:1"


async def test_groups_change_what_is_offered() -> None:
    ours = {"most_gpus": 4, "image": "v:1"}
    one = spawner(
        group_overrides={
            "1": {"groups": ["project-vision"], "spawner_override": ours},
            "2": {"groups": ["project-other"], "spawner_override": {"most_gpus": 9}},
        }
    )
    await one.apply_group_overrides()
    assert one.offer.most.gpus == 4
    assert (await manifest(one))["spec"]["containers"][0]["image"] == "v:1"
    with pytest.raises(WorkspaceRefused, match="a whole number from 0 to 4"):
        one.checked({"project": "vision", "gpus": 5})


async def test_a_hub_that_restarts_knows_pod_and_namespace_again() -> None:
    before = spawner()
    await manifest(before)
    state: Mapping[str, Any] = before.get_state()
    assert TOKEN not in str(state)
    after = spawner()
    after.load_state(state)
    assert (after.namespace, after.pod_name) == ("carrel-vision", before.pod_name)
    assert after.address == before.address
    after.clear_state()
    assert after.address is None


async def test_a_reflector_that_will_never_tell_is_known() -> None:
    loop = asyncio.get_running_loop()
    fresh, failed, loaded = loop.create_future(), loop.create_future(), loop.create_future()
    failed.set_exception(OSError("refused"))
    loaded.set_result(None)
    done = asyncio.create_task(asyncio.sleep(0))
    await done
    going = asyncio.create_task(asyncio.sleep(60))
    cases = [
        (fresh, None, False),
        (failed, None, True),
        (loaded, going, False),
        (loaded, done, True),
    ]
    for first_load, watch, broken in cases:
        assert is_broken(SimpleNamespace(first_load_future=first_load, watch_task=watch)) == broken
    going.cancel()


async def test_the_guides_settings_are_there_and_mean_what_it_says() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "kubernetes.md").read_text()
    (block,) = re.findall(r"```yaml\n(traits:.*?)```", guide, re.DOTALL)
    told = yaml.safe_load(block)["traits"]["CarrelKubeSpawner"]
    one = spawner(**told)
    assert [profile.slug for profile in one.profiles] == ["torch", "r"]
    one.user.groups.append(SimpleNamespace(name="project-course"))
    await one.apply_group_overrides()
    assert (one.offer.most.gpus, one.offer.most.memory_gib) == (1, 16)
    pod = await manifest(one)
    assert pod["spec"]["nodeSelector"] == {"pool": "desks"}
    assert pod["spec"]["containers"][0]["resources"]["limits"]["amd.com/gpu"] == "2"
    table = guide.partition("| setting of `CarrelKubeSpawner`")[2].partition("\n\n")[0]
    rows = [line.split("|")[1] for line in table.splitlines()[2:]]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert len(named) > 10
    assert named <= set(CarrelKubeSpawner.class_trait_names())


def test_jobs_see_volumes_that_several_nodes_may_use() -> None:
    places = {
        "/home/carrel": ("home-ada", ["ReadWriteOnce"]),
        "/home/carrel/project": ("project", ["ReadWriteOnce", "ReadWriteMany"]),
    }
    told = json.loads(manifests.volumes_for_jobs(places))
    assert told == [{"source": "project", "destination": "/home/carrel/project"}]


class Asked:
    """An API server that makes whatever it is asked for, and remembers it."""

    def __init__(self) -> None:
        self.secrets: list[dict[str, Any]] = []

    async def create_namespaced_secret(self, _namespace: str, body: Any) -> None:
        self.secrets.append(body)

    async def create_namespaced_pod(self, _namespace: str, _body: Any) -> None:
        """Made."""

    async def read_namespaced_pod(self, _name: str, _namespace: str) -> Any:
        return SimpleNamespace(metadata=SimpleNamespace(uid="uid-of-the-pod"))

    async def replace_namespaced_secret(self, _name: str, _namespace: str, body: Any) -> None:
        self.secrets.append(body)


async def test_the_secret_goes_with_the_pod_once_that_is_made() -> None:
    one = spawner()
    await manifest(one)
    one.api = Asked()
    await one.prepare()
    pod = await one.get_pod_manifest()
    assert await one._make_create_pod_request(pod, 3)
    assert await one._make_create_pod_request(pod, 3)  # asked for again, it is the same
    first, then = one.api.secrets
    assert "ownerReferences" not in first["metadata"]
    (owner,) = then["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", one.pod_name, "uid-of-the-pod")
    assert then["data"] == first["data"]


async def test_the_pod_runs_under_the_numbers_of_the_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = {"ada": PosixIdentity(uid=2001, gid=3001, gids=(3002,)), "bea": PosixIdentity()}

    async def user_identity(name: str) -> PosixIdentity:
        return told[name]

    scheduler = SimpleNamespace(user_identity=user_identity)
    monkeypatch.setattr(CarrelKubeSpawner, "client", scheduler)
    one, other = spawner(), spawner("bea")
    for each in (one, other):
        await each._take_numbers()
    spec = (await manifest(one))["spec"]
    inside, security = spec["containers"][0]["securityContext"], spec["securityContext"]
    assert (inside["runAsUser"], inside["runAsGroup"]) == (2001, 3001)
    assert (security["fsGroup"], security["supplementalGroups"]) == (3001, [3002])
    usual = (await manifest(other))["spec"]["containers"][0]["securityContext"]
    assert usual["runAsUser"] == 1000
    told["ada"] = PosixIdentity(problem="the directory has no uid and gid of theirs")
    with pytest.raises(WorkspaceRefused, match="no uid and gid of theirs"):
        await one._take_numbers()
