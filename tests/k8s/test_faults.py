"""Stories of faults on the real API server; ``tests/hunts/kubernetes.py`` tells hundreds more.

One is of no fault: of work that moves by itself, on the same server.
"""

import asyncio
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from carrel_scheduler.engines.gpu_models import PRODUCT
from carrel_scheduler.engines.kubernetes import leadership
from carrel_scheduler.engines.kubernetes.binding import BindTarget, NotBound, bind
from carrel_scheduler.engines.kubernetes.leadership import Clocks, Leader
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.resources import LEASES, PODS
from carrel_schema.names import EPOCH, LEASE
from carrel_schema.objects import WorkloadStatus
from k8s.cluster import binaries
from k8s.cluster.records import Record
from k8s.delayed_bindings import delaying
from k8s.fault_runs import Runs
from k8s.fault_site import FaultSite
from k8s.scheduling import TIMEOUT_SECONDS

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow, pytest.mark.timeout(900)]
POD = "late"


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    record = Record.begin()
    try:
        made = Runs(binaries.control_plane(print), record)
        yield made
        made.close()
    finally:
        record.end()


def dry(epoch: int) -> dict[str, Any]:
    """A binding of that epoch."""
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": POD, "annotations": {EPOCH: str(epoch)}},
        "target": {"kind": "Node", "name": "somewhere"},
    }


@pytest.mark.parametrize("seed", [0, 3])
async def test_nothing_is_given_twice_nor_lost(runs: Runs, seed: int) -> None:
    await runs.tell(seed)


async def test_work_moves_to_a_better_type_of_gpu_once_that_is_free(runs: Runs) -> None:
    models = {"better": "NVIDIA-H100-80GB-HBM3", "second": "NVIDIA-A100-SXM4-80GB"}
    asked: dict[str, Any] = {"gpuTypes": ["H100", "A100"]}
    async with runs.without_faults() as here:
        nodes = {word: f"{here.name}-{word}" for word in models}
        for word, node in nodes.items():
            await here.add_node(node, 2, **{PRODUCT: models[word]})
        await here.add_project("a", 4)
        await here.add_work("a", "first", "training", 1, 2, **asked)
        await runs_on(here, "first", nodes["better"])
        await here.add_work("a", "moving", "training", 1, 2, **asked, moveToBetterType=True)
        await runs_on(here, "moving", nodes["second"])
        uid = (await here.work())["first"].meta.uid
        [pod] = here.tasks_of(uid)
        await here.finish(pod)
        status = await runs_on(here, "moving", nodes["better"])
        assert (status.attempt, status.failures, status.preemptions) == (1, 0, 1)
        assert status.last_preemption is not None
        assert status.last_preemption.rule == "improve"
        await here.check_room()


async def runs_on(here: FaultSite, name: str, node: str) -> WorkloadStatus:
    """The status of work once it runs on a node."""
    status = WorkloadStatus()
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                work = (await here.work()).get(name)
                status = WorkloadStatus() if work is None else work.status
                if status.phase == "running" and status.tasks[0].node == node:
                    return status
                await asyncio.sleep(0.1)
    except TimeoutError:
        raise AssertionError(f"{name} does not run on {node}: {status}") from None


async def test_what_a_former_leader_began_is_over_before_the_next_one_looks(
    runs: Runs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A binding that was let in under the old epoch is delayed within the API server."""
    monkeypatch.setattr(leadership, "SEEN_SECONDS", TIMEOUT_SECONDS)
    client = KubeClient(from_kubeconfig(runs.kubeconfig))
    clocks = Clocks(time.monotonic, time.time)
    first, second = (
        Leader(client, runs.namespace, name, clocks, state_folder="one")
        for name in ("first", "second")
    )
    container = {"name": "main", "image": "none"}
    manifest = {"metadata": {"name": POD}, "spec": {"containers": [container]}}
    pod = await client.create(PODS, manifest, runs.namespace, Pod)
    target = BindTarget(runs.namespace, POD, pod.metadata.uid, "somewhere", (0,), pod)
    path = PODS.path(runs.namespace, POD, "binding")
    try:
        async with asyncio.timeout(TIMEOUT_SECONDS), delaying(runs.plane, tmp_path, POD) as delayed:
            epoch = await first.acquire()
            assert await first.fenced()
            await delayed.known(partial(client.raw, "POST", f"{path}?dryRun=All", dry(epoch)))
            binding = asyncio.create_task(bind(client, target, epoch))
            await delayed.came.wait()
            assert await second.acquire() == epoch + 1
            assert await second.fenced()
            delayed.go.set()  # too late: the server has given it up
            with pytest.raises(NotBound) as refused:
                await binding
            assert refused.value.fenced
            now = await client.get(PODS, POD, runs.namespace, Pod)
            assert not now.spec.node_name
    finally:
        await client.delete(PODS, POD, runs.namespace, grace_seconds=0)
        await client.delete(LEASES, LEASE, runs.namespace)
        await client.close()
