"""The whole way of a job on a cluster: REST, custom resource, quota, pod, log, preemption, end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.resources import PODS
from k8s.cluster.loading import Images
from k8s.cluster.node import Node
from k8s.cluster_service import ClusterService
from k8s.ours import Kubectl, kubectl, ours
from k8s.served import finish, served

__all__ = ["kubectl", "ours"]  # fixtures
pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]

# Counts until it is told to finish; where it was is kept, and where it began is said.
COUNTS = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["CARREL_CHECKPOINT_DIR"])
kept = folder / "step"
step = int(kept.read_text()) if kept.exists() else 0
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
print("begins at", step, flush=True)
while True:
    step += 1
    time.sleep(0.05)
    if told:
        kept.write_text(str(step))
        print("told to end at", step, flush=True)
        sys.exit(1)
    if (folder / "finish").exists():
        break
print("done after", step, flush=True)
"""

# Meets the others at the first, by name, and stays until it is told to finish.
MEETS = """
import os, pathlib, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", where[1]))
    others = [server.accept()[0] for _ in range(size - 1)]
else:
    while True:
        try:
            first = socket.create_connection(where, 5)
            break
        except OSError:
            time.sleep(0.1)
other = f"pair-{1 - rank}"
while True:  # a name may be known later than its member can be reached
    try:
        address = socket.gethostbyname(other)
        break
    except OSError:
        time.sleep(0.1)
print("met", other, address, flush=True)
while not (pathlib.Path(os.environ["CARREL_CHECKPOINT_DIR"]) / "finish").exists():
    time.sleep(0.05)
"""


@pytest.fixture
async def service(
    request: pytest.FixtureRequest,
    node: Node,
    images: Images,
    ours: object,
    kubectl: Kubectl,
    tmp_path: Path,
) -> AsyncIterator[ClusterService]:
    """The service, with its own rights; projects of four GPUs each, on a node of eight."""
    async with served(node, images, kubectl, tmp_path, request.param) as made:
        yield made


@pytest.mark.parametrize("service", [("optics", "music")], indirect=True)
async def test_a_job_gives_way_and_goes_on_where_it_was(
    service: ClusterService, kubectl: Kubectl, node: Node
) -> None:
    files = {"count.py": COUNTS}
    command = ["python3", "count.py"]
    uid = await service.submit("optics", "counts", gpus=8, command=command, files=files)
    running = await service.phase("optics", "counts", "running")
    assert running["borrowed"] is True
    assert running["tasks"][0]["address"]
    listed = await asyncio.to_thread(kubectl, "get", "trainings", "-n", "carrel-optics")
    assert "Running" in listed
    await service.said("optics", "counts", "begins at 0\n")

    await service.submit("music", "urgent", gpus=4, command=["true"])
    await service.phase("music", "urgent", "succeeded")
    after = await service.until("optics", "counts", lambda status: status["attempt"] == 1)
    assert after["preemptions"] == 1
    assert after["failures"] == 0
    first = await service.said("optics", "counts", "told to end at ", attempt="0")
    kept = int(first.split()[-1])
    assert kept > 0
    await service.said("optics", "counts", f"begins at {kept}\n", attempt="1")

    await service.restart()
    finish(node, "optics", uid)
    ended = await service.phase("optics", "counts", "succeeded")
    assert (ended["attempt"], ended["tasks"][0]["exit_code"]) == (1, 0)
    count = (await service.logs("optics", "counts")).split()[-1]
    assert int(count) > kept


@pytest.mark.parametrize("service", [("duets",)], indirect=True)
async def test_a_gang_meets_by_name_and_starts_again_together(
    service: ClusterService, node: Node
) -> None:
    uid = await service.submit(
        "duets",
        "pair",
        kind="distributed",
        tasks=2,
        gpus=1,
        command=["python3", "meet.py"],
        files={"meet.py": MEETS},
    )
    for index in (0, 1):
        await service.said("duets", "pair", f"met pair-{1 - index}", index=str(index))
    client = KubeClient(from_kubeconfig(node.kubeconfig))
    try:
        await client.delete(PODS, f"{uid}-1-0", "carrel-duets", grace_seconds=0)
    finally:
        await client.close()
    again = await service.until("duets", "pair", lambda status: status["attempt"] == 1)
    assert again["failures"] == 0
    for index in (0, 1):
        await service.said("duets", "pair", "met", index=str(index), attempt="1")
    finish(node, "duets", uid)
    ended = await service.phase("duets", "pair", "succeeded")
    assert [task["attempt"] for task in ended["tasks"]] == [1, 1]
