"""What users of Kueue, Volcano and Kubeflow submit is grouped as they mean it."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from carrel_scheduler.engines.kubernetes.external_pods.reading import (
    KnownProjects,
    OwnerLookup,
)
from carrel_scheduler.engines.kubernetes.pods.grouping import Grouper, OwnerReader
from carrel_scheduler.engines.kubernetes.pods.labels import Grouped
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import MARKS
from k8s.peers.applying import Space, define, until

pytestmark = MARKS

Gangs = dict[tuple[str, str], tuple[dict[str, int], dict[str, int]]]
"""Kind and name of a group -> how many pods of each role it needs, and how many there are."""
GANGS: dict[str, Gangs] = {
    "volcano-job": {("PodGroup", "tensorflow-dist-pg"): ({"": 3}, {"": 4})},
    "kubeflow-pytorchjob": {
        ("PyTorchJob", "mnist"): ({"master": 1, "worker": 3}, {"master": 1, "worker": 3})
    },
    "mpijob": {
        ("MPIJob", "circle"): ({"launcher": 1, "worker": 2}, {"launcher": 1, "worker": 2}),
    },
    "trainjob": {("JobSet", "tune-node"): ({"node": 2}, {"node": 2})},
    "jobset": {
        ("JobSet", "pretrain"): ({"driver": 1, "workers": 4}, {"driver": 1, "workers": 4}),
    },
    "raycluster": {
        ("RayCluster", "search-raycluster-abcde"): (
            {"headgroup": 1, "gpu-group": 1},
            {"headgroup": 1, "gpu-group": 2},
        ),
        ("Job", "search-submitter"): ({}, {"": 1}),
    },
    "leaderworkerset": {
        ("LeaderWorkerSet", "llm-0"): ({"leader": 1, "worker": 2}, {"leader": 1, "worker": 2})
    },
    "deployment": {("Deployment", "demo"): ({}, {"": 2})},
    "scheduling-group": {("PodGroup", "train-workers"): ({"": 2}, {"": 3})},
    "podgroup": {("PodGroup", "pair"): ({"": 2}, {"": 2})},
}


@pytest.fixture(scope="module")
def peers(plane: ControlPlane) -> ControlPlane:
    define(plane)
    return plane


@pytest.fixture
def space(peers: ControlPlane) -> Iterator[Space]:
    made = Space(peers, f"peer-{uuid.uuid4().hex[:8]}")
    yield made
    made.end()


def grouped(plane: ControlPlane, folder: Path, pods: list[dict[str, Any]]) -> list[Grouped]:
    """The groups of pods, their owners looked up on the cluster."""

    async def group() -> list[Grouped]:
        client = KubeClient(from_kubeconfig(plane.kubeconfig(folder / "admin")))
        try:
            projects = KnownProjects({"speech": None}, dict)
            grouper = Grouper(OwnerReader(OwnerLookup(client)), projects)
            return [await grouper.group(msgspec.convert(one, type=Pod)) for one in pods]
        finally:
            await client.close()

    return asyncio.run(group())


def gangs_of(found: list[Grouped]) -> Gangs:
    gangs: Gangs = {}
    for one in found:
        grouping = one.grouping
        least = {role.name: role.least for role in grouping.roles}
        there = gangs.setdefault((grouping.kind, grouping.name), (least, {}))[1]
        there[one.role] = there.get(one.role, 0) + 1
    return gangs


@pytest.mark.parametrize("peer", sorted(GANGS))
def test_pods_of_a_peer_are_the_workload_that_it_means(
    peer: str, space: Space, tmp_path: Path
) -> None:
    space.apply(f"{peer}.yaml")
    count = sum(number for _, there in GANGS[peer].values() for number in there.values())
    pods = until(lambda: found if len(found := space.pods()) >= count else None)
    found = grouped(space.plane, tmp_path, pods)
    assert gangs_of(found) == GANGS[peer]
    assert {one.grouping.project for one in found} == {"speech"}
    assert len({one.grouping.uid for one in found}) == len(GANGS[peer])


def test_a_suspended_job_asks_for_nothing_until_it_is_let_go(space: Space, tmp_path: Path) -> None:
    space.apply("kueue-job.yaml")
    assert space.pods() == []
    space.unsuspend("sample")
    pods = until(lambda: found if len(found := space.pods()) == 3 else None)
    found = grouped(space.plane, tmp_path, pods)
    assert gangs_of(found) == {("Job", "sample"): ({"": 3}, {"": 3})}
    assert found[0].grouping.project == "speech"
