"""What tasks in containers are told: names, programs of their image, no paths of ours."""

import sys
from pathlib import Path

from carrel_scheduler.engines.contract import TaskSpec
from carrel_scheduler.workloads.launch.task_specs import TaskTokens, on_cluster, task_specs
from carrel_scheduler.workloads.state import shape
from carrel_scheduler.workloads.state.cache import CachedWorkload, Place
from carrel_scheduler.workloads.state.ports import FixedPorts
from carrel_schema.objects import Meta, Resources, TaskInfo, Workload, WorkloadSpec
from carrel_schema.sections import Rendezvous, Route

SETTINGS = on_cluster("http://api/services/carrel", TaskTokens(b"k" * 32), "/services/gateway")


def launched(spec: WorkloadSpec) -> list[TaskSpec]:
    entry = CachedWorkload(Workload(meta=Meta(name="train", project="vision", uid="u1"), spec=spec))
    for index in range(spec.tasks):
        entry.places[index] = Place(f"node-{index}", (index,))
        routes = [*spec.routes, *(Route(name=name) for name in shape.own_ports(spec, index))]
        ports = FixedPorts().give(entry.task_id(index), routes, ())
        told = TaskInfo(index=index, attempt=0, node=f"node-{index}", ports=ports)
        entry.workload.status.tasks.append(told)
    return task_specs(entry, range(spec.tasks), {}, {}, SETTINGS)


def test_members_find_each_other_by_names_of_the_cluster() -> None:
    gang = WorkloadSpec(kind="distributed", tasks=2, command=["train"])
    first, second = launched(gang)
    assert second.environment["MASTER_ADDR"] == "train-0.gang-u1"
    assert second.environment["MASTER_PORT"] == "8080"
    assert (second.hostname, second.subdomain) == ("train-1", "gang-u1")
    assert (first.hosts, second.seen_as) == ((), None)


def test_programs_are_the_images_own() -> None:
    work = WorkloadSpec(kind="training", command=[sys.executable, "-m", "carrel.job.x"])
    (one,) = launched(work)
    assert one.command == ("python3", "-m", "carrel.job.x")
    assert "PATH" not in one.environment
    mpi = WorkloadSpec(
        kind="distributed", tasks=2, command=["mpirun"], rendezvous=Rendezvous(launcher="mpi")
    )
    first, second = launched(mpi)
    assert first.environment["HYDRA_LAUNCHER_EXEC"] == "carrel-reach"
    assert second.command[0] == "python3"
    assert str(Path(sys.executable).parent) not in str([first, second])


def test_what_the_engine_has_to_know_of_a_pod() -> None:
    resources = Resources(gpu_milli=1000)
    workspace = WorkloadSpec(
        kind="workspace", external=True, image="desk:1", resources=resources, user="ada"
    )
    (one,) = launched(workspace)
    assert (one.kind, one.external, one.image, one.gpu_milli) == ("workspace", True, "desk:1", 1000)
    assert (one.device_uuids, one.checkpoint_dir) == ((), "")
