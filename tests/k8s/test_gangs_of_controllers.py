"""Work of other controllers: all pods of an object start, or none, and objects are told apart.

The manifests beside ``peers`` have what those controllers make, of the versions that they name;
Kubernetes' own controllers make pods of Jobs and StatefulSets, and remove what a deleted object
owned. Kubelets are played.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from k8s.cluster.control_plane import ControlPlane
from k8s.kubelets import Pod
from k8s.ours import MARKS
from k8s.peers.applying import Space, define
from k8s.scheduling import Site, running, site

pytestmark = MARKS
PEERS: Final = "peers"


@dataclass(frozen=True, slots=True)
class Controlled:
    """An object of a kind, and what becomes of it.

    Attributes:
        file: its manifest.
        kind: as its API calls it, with group and version.
        name: the object's in the manifest.
        group: the name that its pods' gang has.
        pods: so many there are, and start together.
        gpus: so many they have together.
    """

    file: str
    kind: str
    name: str
    group: str
    pods: int
    gpus: int


GANGS: Final = (
    Controlled("job.yaml", "batch/v1/Job", "sweep", "sweep", 3, 3),
    Controlled("jobset.yaml", "jobset.x-k8s.io/v1alpha2/JobSet", "pretrain", "pretrain", 5, 5),
    Controlled(
        "leaderworkerset.yaml",
        "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet",
        "llm",
        "llm-0",
        3,
        3,
    ),
    Controlled("rayjob.yaml", "ray.io/v1/RayJob", "tuning", "tuning-vwxyz", 3, 2),
    Controlled(
        "trainjob.yaml", "trainer.kubeflow.org/v1alpha1/TrainJob", "tune", "tune-node", 2, 2
    ),
    Controlled("mpijob.yaml", "kubeflow.org/v2beta1/MPIJob", "circle", "circle", 3, 2),
    Controlled("kubeflow-pytorchjob.yaml", "kubeflow.org/v1/PyTorchJob", "mnist", "mnist", 4, 4),
)


@pytest.fixture(scope="module")
def kinds(plane: ControlPlane) -> ControlPlane:
    define(plane)
    return plane


@pytest.fixture
async def here(kinds: ControlPlane, tmp_path: Path) -> AsyncIterator[Site]:
    async with site(kinds.kubeconfig(tmp_path / "kubeconfig"), tmp_path) as made:
        await made.add_project("a", 16)
        yield made


async def add_node(here: Site, word: str, gpus: int) -> None:
    await here.add_node(f"{here.name}-{word}", gpus, **{PEERS: here.name})


def space_of(
    here: Site,
    plane: ControlPlane,
    more: Mapping[str, str] | None = None,
    *,
    own_when_bound: bool = False,
) -> Space:
    """The project's namespace, where manifests name this project and the test's nodes."""
    own = {"speech": here.project("a"), f'{{{PEERS}: "yes"}}': f"{{{PEERS}: {here.name}}}"}
    return Space(plane, here.namespace("a"), own | dict(more or {}), own_when_bound=own_when_bound)


def told(pod: Pod) -> str:
    """The reason of a pod that waits."""
    conditions = pod.status.conditions
    return " ".join(one.message for one in conditions if one.type == "PodScheduled")


def waiting(here: Site, group: str) -> set[str]:
    """The pods that wait and are told that they are of this gang."""
    return {
        name
        for name, pod in here.of("a").items()
        if not pod.spec.node_name and f"`{group}`, which starts as a whole" in told(pod)
    }


@pytest.mark.parametrize("one", GANGS, ids=lambda one: one.kind.rpartition("/")[2])
async def test_all_pods_of_an_object_start_or_none(
    one: Controlled, here: Site, kinds: ControlPlane
) -> None:
    again = f"{one.name}2"
    first, second = space_of(here, kinds), space_of(here, kinds, {one.name: again})
    await add_node(here, "small", one.gpus - 1)
    async with running(here.scheduler()):
        await asyncio.to_thread(first.apply, one.file)
        found = await here.until(lambda: _all(one, waiting(here, one.group)), "pods that wait")
        assert here.bound("a") == {}, "all but one would fit"
        await add_node(here, "more", 1)
        await here.until(lambda: here.bound("a").keys() == found, "all of it, once all fit")
        await asyncio.to_thread(second.apply, one.file)
        other = one.group.replace(one.name, again)
        others = await here.until(lambda: _all(one, waiting(here, other)), "the second, waiting")
        assert here.bound("a").keys() == found, "the second is a group of its own"
        await asyncio.to_thread(first.remove, one.kind, one.name)
        await here.until(lambda: here.bound("a").keys() == others, "the second, in its place")
        await here.until(lambda: here.of("a").keys() == others, "the end of the first")


def _all(one: Controlled, pods: set[str]) -> set[str] | None:
    """The pods of an object if they are complete."""
    return pods if len(pods) == one.pods else None


EXCLUSIVE: Final = {
    "leaderworkerset.yaml": ("llm", "leaderworkerset.sigs.k8s.io/exclusive-topology"),
    "jobset.yaml": ("pretrain", "alpha.jobset.sigs.k8s.io/exclusive-topology"),
}


def exclusive(here: Site, plane: ControlPlane, file: str) -> Space:
    """The namespace, where the object of a manifest keeps racks to itself.

    Its controller makes the workers of a leader once the leader has a node: the rack is the node's.
    """
    name, annotation = EXCLUSIVE[file]
    found = f"  name: {name}\n  labels"
    changed = f"  name: {name}\n  annotations: {{{annotation}: rack}}\n  labels"
    return space_of(here, plane, {found: changed}, own_when_bound=True)


async def test_a_leader_that_keeps_a_rack_to_itself_does_not_wait_for_its_workers(
    here: Site, kinds: ControlPlane
) -> None:
    space = exclusive(here, kinds, "leaderworkerset.yaml")
    await add_node(here, "small", 2)
    async with running(here.scheduler()):
        await asyncio.to_thread(space.apply, "leaderworkerset.yaml")
        workers = {"llm-0-1", "llm-0-2"}
        await here.until(lambda: waiting(here, "llm-0-worker") == workers, "workers that wait")
        await here.until(lambda: here.bound("a").keys() == {"llm-0"}, "the leader by itself")
        await add_node(here, "more", 1)
        await here.until(lambda: here.bound("a").keys() == {"llm-0", *workers}, "the workers")


async def test_pods_of_jobs_that_keep_racks_to_themselves_start_each_by_itself(
    here: Site, kinds: ControlPlane
) -> None:
    space = exclusive(here, kinds, "jobset.yaml")
    await add_node(here, "small", 2)
    async with running(here.scheduler()):
        await asyncio.to_thread(space.apply, "jobset.yaml")
        await here.until(lambda: len(here.bound("a")) == 2, "two of five pods")


async def test_pods_of_a_job_without_numbers_start_as_there_is_room(
    here: Site, kinds: ControlPlane
) -> None:
    space = space_of(here, kinds)
    await add_node(here, "small", 2)
    async with running(here.scheduler()):
        await asyncio.to_thread(space.apply, "job-of-tasks.yaml")
        await here.until(lambda: len(here.bound("a")) == 2, "two of three pods")
        [left] = here.of("a").keys() - here.bound("a").keys()
        await here.until(lambda: told(here.of("a")[left]), "why the third waits")
        assert waiting(here, "tasks") == set()
        await add_node(here, "more", 1)
        await here.until(lambda: left in here.bound("a"), "the third")
