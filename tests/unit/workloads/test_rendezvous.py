"""What members of a gang are told, looked at without any engine."""

import json

import pytest

from carrel_scheduler.engines.contract import TaskSpec
from carrel_scheduler.workloads.gangs import rendezvous
from carrel_scheduler.workloads.launch.task_specs import LaunchSettings, TaskTokens, task_specs
from carrel_scheduler.workloads.state import shape
from carrel_scheduler.workloads.state.cache import CachedWorkload, Place
from carrel_schema.objects import Meta, Resources, TaskInfo, Workload, WorkloadSpec
from carrel_schema.sections import Elastic, Rendezvous


def entry(
    tasks: int = 2, *, gpus: int = 2, launcher: str = "each", least: int = 0
) -> CachedWorkload:
    spec = WorkloadSpec(
        kind="distributed",
        tasks=tasks,
        command=["train"],
        resources=Resources(gpu_milli=gpus * 1000),
        rendezvous=Rendezvous(launcher="mpi" if launcher == "mpi" else "each"),
        elastic=Elastic(min_tasks=least) if least else None,
    )
    made = CachedWorkload(Workload(meta=Meta(name="train", uid="u1"), spec=spec))
    for index in range(tasks):
        devices = tuple(range(index * gpus, (index + 1) * gpus))
        made.places[index] = Place(f"node-{index}", devices)
        names = shape.own_ports(spec, index)
        ports = {name: 20_000 + 10 * index + at for at, name in enumerate(names)}
        made.workload.status.tasks.append(
            TaskInfo(index=index, attempt=0, node=f"node-{index}", devices=devices, ports=ports)
        )
    return made


def told(made: CachedWorkload, index: int) -> dict[str, str]:
    return rendezvous.environment(made, index, lambda of, member: f"{of.places[member].node}.lan")


def specs_of(made: CachedWorkload) -> list[TaskSpec]:
    settings = LaunchSettings("http://hub", None, TaskTokens(b"k" * 32))
    return task_specs(made, made.tasks, {}, {}, settings)


def test_all_meet_at_the_first_and_each_names_its_own_devices() -> None:
    made = entry()
    assert told(made, 1)["MASTER_ADDR"] == "node-0.lan"
    assert told(made, 0)["PET_RDZV_ENDPOINT"] == told(made, 1)["PET_RDZV_ENDPOINT"]
    assert told(made, 1)["PET_NPROC_PER_NODE"] == "2"
    assert told(made, 1)["JAX_LOCAL_DEVICE_IDS"] == "0,1"
    assert told(made, 1)["OMPI_COMM_WORLD_RANK"] == "1"
    assert rendezvous.hosts(made, rendezvous.name_on_cluster) == (
        ("train-0.gang-u1", "train-0"),
        ("train-1.gang-u1", "train-1"),
    )


def test_an_elastic_gang_meets_at_the_first_whoever_else_is_there() -> None:
    made = entry(tasks=4, least=2)
    assert told(made, 0)["PET_NNODES"] == "2:4"
    assert [told(made, index)["PET_RDZV_CONF"] for index in (0, 3)] == ["is_host=1", "is_host=0"]


def test_tensorflow_learns_every_worker_with_its_port_and_which_one_it_is() -> None:
    made = entry(tasks=3)
    workers = ["node-0.lan:20000", "node-1.lan:20010", "node-2.lan:20020"]
    assert [json.loads(told(made, index)["TF_CONFIG"]) for index in range(3)] == [
        {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        for index in range(3)
    ]
    assert told(made, 0)["MASTER_PORT"] == "20000"
    assert "TF_CONFIG" not in told(entry(tasks=4, least=2), 0)
    assert "TF_CONFIG" not in told(entry(launcher="mpi"), 0)


def test_mpi_members_have_ports_and_nothing_that_another_launcher_would_take_for_its_own() -> None:
    made = entry(launcher="mpi")
    first, second = told(made, 0), told(made, 1)
    assert first["CARREL_MEMBERS"] == "train-0=node-0.lan:20001,train-1=node-1.lan:20010"
    assert second["HYDRA_HOST_FILE"] == "$(CARREL_TASK_DIR)/hostfile"
    assert second["PRTE_MCA_prte_default_hostfile"] == "$(CARREL_TASK_DIR)/hostfile.openmpi"
    assert rendezvous.files(made) == {
        "hostfile": "train-0\ntrain-1\n",
        "hostfile.openmpi": "train-0 slots=2\ntrain-1 slots=2\n",
    }
    assert not any(name.startswith(("OMPI_COMM", "JAX")) for name in first)
    assert rendezvous.hosts(made, rendezvous.name_on_cluster) == ()
    commands = [task.command for task in specs_of(made)]
    assert commands == [("train",), rendezvous.MEMBER_COMMAND]


def test_mpi_stays_on_its_machine_where_all_members_do_and_the_user_has_the_last_word() -> None:
    made = entry(launcher="mpi")
    made.workload.spec.environment = {
        "PRTE_MCA_hwloc_default_binding_policy": "core",
        "PRTE_MCA_plm_ssh_agent": "ssh",
    }
    apart = told(made, 0)
    assert apart["PRTE_MCA_hwloc_default_binding_policy"] == "core"
    assert apart["PRTE_MCA_plm_ssh_agent"].endswith("/carrel-reach")
    assert not {"OMPI_MCA_btl_tcp_if_include", "TMPDIR"} & set(apart)
    together = rendezvous.environment(made, 0, lambda *_: "127.0.0.1")
    assert together["OMPI_MCA_btl_tcp_if_include"] == "127.0.0.0/8"
    assert together["TMPDIR"] == "$(CARREL_TASK_DIR)"


@pytest.mark.parametrize("kind", ["training", "workspace"])
def test_other_work_is_told_nothing(kind: str) -> None:
    made = entry(tasks=1)
    made.workload.spec.kind = "training" if kind == "training" else "workspace"
    (task,) = specs_of(made)
    assert task.command == ("train",)
    assert not {"RANK", "MASTER_ADDR", "CARREL_MEMBERS"} & set(task.environment)
    assert (task.files, task.hosts, task.hostname, task.subdomain) == ({}, (), "", "")
