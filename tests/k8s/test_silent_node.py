"""A node falls silent under work, and what the cluster's own controllers make of it.

The kubelets are simulated: that of one node says and does nothing any more. That the node is out of
reach, and that its pods are to be deleted, the real controller-manager finds.
"""

import asyncio
import random
from pathlib import Path
from typing import Final

import pytest

from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from carrel_schema.objects import WorkloadStatus
from k8s.cluster import binaries, control_plane
from k8s.cluster.records import Record
from k8s.fault_runs import install
from k8s.fault_site import FaultSite, database, fault_site
from k8s.kubelets import HEARTBEAT_SECONDS, Pod
from k8s.ours import Kubectl
from k8s.scheduler_processes import SchedulerForkServer
from k8s.scheduler_replicas import SchedulerReplica
from k8s.scheduling import TIMEOUT_SECONDS

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow, pytest.mark.timeout(900)]
CONTROLLERS: Final = "serviceaccount-controller,node-lifecycle-controller,taint-eviction-controller"
SOON: Final = (
    "--node-monitor-period=1s",
    f"--node-monitor-grace-period={HEARTBEAT_SECONDS + 6:g}s",
)
NAMESPACE: Final = "carrel-system"
NODE_GPUS: Final = 2


async def test_work_begins_elsewhere_once_its_node_is_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARREL_LOST_AFTER_SECONDS", "2")
    record = Record.begin()
    try:
        programs = binaries.control_plane(print)
        plane = control_plane.start(programs, record, CONTROLLERS, SOON)
        kubeconfig = plane.kubeconfig(record.folder / "kubeconfig")
        install(plane, Kubectl(programs["kubectl"], kubeconfig), NAMESPACE)
        async with (
            fault_site(kubeconfig, tmp_path, NAMESPACE) as here,
            StandInHub({"ada": Account("ada", (USE, ADMIN))}) as hub,
        ):
            with SchedulerForkServer() as fork_server:
                chance = random.Random(0)
                rows = database(tmp_path)
                replica = SchedulerReplica(
                    "only", fork_server, plane, tmp_path, rows, NAMESPACE, hub.url, chance
                )
                try:
                    await replica.open()
                    replica.start(faulty=False)
                    await _falls_silent(here)
                finally:
                    await replica.close()
    finally:
        record.end()


async def _falls_silent(here: FaultSite) -> None:
    await here.add_nodes(2, NODE_GPUS)
    await here.add_project("a", 2 * NODE_GPUS)
    await here.add_work("a", "night", "training", 1, NODE_GPUS)
    first = (await here.until(lambda: list(here.bound("a").values()), "pod that runs"))[0]
    node = first.spec.node_name
    here.silent.add(node)
    fact = here.nodes.pop(node)  # nobody says any more that it is there
    second = await here.until(lambda: _other(here, node), "pod on the other node")
    night = await _running(here, second)
    assert (night.attempt, night.failures) == (1, 0)
    await here.check_room()
    here.nodes[node] = fact
    here.silent.discard(node)
    await here.until(lambda: first.metadata.uid not in here.pods, "end of the first pod")
    await here.add_work("a", "day", "training", 1, NODE_GPUS)
    await here.until(lambda: len(here.bound("a")) == 2, "work on the node that came back")
    assert {pod.spec.node_name for pod in here.bound("a").values()} == set(here.nodes)
    await here.check_room()


def _other(here: FaultSite, node: str) -> Pod | None:
    """A pod that runs on another node."""
    return next((pod for pod in here.bound("a").values() if pod.spec.node_name != node), None)


async def _running(here: FaultSite, pod: Pod) -> WorkloadStatus:
    """The status of the work of a pod, once it says that it runs there."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            status = (await here.work())["night"].status
            if status.phase == "running" and status.tasks[0].node == pod.spec.node_name:
                return status
            await asyncio.sleep(0.2)
