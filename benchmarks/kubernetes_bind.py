"""Submit to bound on a real API server: our scheduler and kube-scheduler, in one run.

Each gets a fresh control plane with Node objects of 8 GPUs and the same pods of one GPU, created
while they are being scheduled. Ours decides with quotas, fairness and reasons on: the pods belong
to two projects that each have half of the GPUs guaranteed; and its bindings pass the policy that
refuses those of former schedulers. Then, on the full cluster, 100 pods leave and 100 come, several
times; the middle time counts.

With ``--share 0.5`` ours places pods that each ask for that part of a GPU, and holds every GPU that
it shares with a reservation pod; the nodes' answers are simulated. kube-scheduler knows no parts:
its pods ask for whole GPUs. With ``--gangs 3000x3`` the pods are so many gangs of so many, which
ours binds whole or not at all, while kube-scheduler binds the same pods one by one.

``python -m benchmarks.kubernetes bind [--nodes 500] [--jobs 4000] [--rounds 1] [--json]``
``python -m benchmarks.kubernetes bind [--share 0.5 | --nodes 5000 --gangs 3000x3]``
"""

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks import kubernetes_cluster
from benchmarks.kubernetes_bind_figures import OURS, PEER, Run, figures, together
from benchmarks.kubernetes_bind_load import (
    NAMESPACES,
    PROJECTS,
    Load,
    ReservationAnswers,
)
from benchmarks.kubernetes_cluster import Cluster, cpu_seconds, memory_mib
from benchmarks.report import Figure, median
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.feed import Feed
from carrel_scheduler.kube.reflector import ChangeKind
from carrel_scheduler.kube.resources import PODS
from carrel_scheduler.kube.writes import Writer
from carrel_scheduler.ledger.open import open_ledger
from carrel_schema.names import RESERVATIONS_NAMESPACE, SYSTEM_NAMESPACE
from carrel_schema.objects import Meta, Project, ProjectSpec, Quota
from k8s.cluster import binaries
from k8s.cluster.waiting import free_port

TESTS: Final = Path(__file__).parents[1] / "tests"
POLICY: Final = Path(__file__).parents[1] / "deploy" / "kubernetes" / "fencing.yaml"
CHURN: Final = 100
CHURNS: Final = 5
TIMEOUT_SECONDS: Final = 600.0
Starter = Callable[[Cluster, int], tuple[str, int]]
"""Starts a scheduler for so many nodes; gives its name for pods, and its process."""


class Watcher:
    """Notes when each pod was seen bound."""

    def __init__(self, client: KubeClient) -> None:
        self.feed: Feed[Pod] = Feed(client, PODS, Pod)
        self.bound: dict[str, float] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Watch for ever."""
        heard = self.feed.subscribe()
        while changes := await heard.batch():
            now = time.monotonic()
            for change in changes:
                if change.kind is ChangeKind.SYNCED:
                    continue
                one = change.object
                if one.spec.node_name:
                    self.bound.setdefault(one.metadata.name, now)
            self._changed.set()

    async def all_bound(self, names: list[str]) -> None:
        """Wait until these pods are bound."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while missing := sum(1 for name in names if name not in self.bound):
            self._changed.clear()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    await self._changed.wait()
            except TimeoutError:
                raise RuntimeError(f"{missing} of {len(names)} pods were not bound") from None


async def measure(cluster: Cluster, start: Starter, nodes: int, load: Load) -> Run:
    """Fill the cluster, then churn; ``start`` starts a scheduler and gives its pid."""
    client = cluster.client()
    watcher = Watcher(client)
    answers = ReservationAnswers(client, watcher.feed)
    watching = [asyncio.create_task(one.run()) for one in (watcher, answers)]
    try:
        await kubernetes_cluster.add_nodes(client, nodes)
        for namespace in (*NAMESPACES, RESERVATIONS_NAMESPACE):
            await kubernetes_cluster.add_namespace(client, namespace)
        await watcher.feed.synced()
        name, pid = await asyncio.to_thread(start, cluster, nodes)
        load = load if name == OURS else load.for_peer()
        run = Run()
        before, writes = cpu_seconds(pid), cluster.writes()
        began = time.monotonic()
        names = [f"job-{number:05}" for number in range(load.pods)]
        sent = await _submit(client, name, load, names)
        await watcher.all_bound(names)
        run.rate = load.pods / (max(watcher.bound[one] for one in names) - began)
        run.latencies = [watcher.bound[one] - sent[one] for one in names]
        run.cpu, run.memory = cpu_seconds(pid) - before, memory_mib(pid)
        await asyncio.sleep(2)  # events that are still on their way
        run.writes = (cluster.writes() - writes - answers.written) / load.pods
        if load.gang_size == 1:
            run.churn = await _churns(client, watcher, name, load, names)
        return run
    finally:
        for one in watching:
            one.cancel()
        await watcher.feed.close()
        await client.close()


async def _submit(
    client: KubeClient, scheduler: str, load: Load, names: list[str]
) -> dict[str, float]:
    """Create pods, many at once; returns when each was sent."""
    sent: dict[str, float] = {}

    async def create(number: int, name: str) -> None:
        body = load.pod(number, name, scheduler)
        sent[name] = time.monotonic()
        await client.create(PODS, body, load.namespace(number))

    async with Writer(32) as writer:
        waiting = [writer.submit(partial(create, number, one)) for number, one in enumerate(names)]
        await asyncio.gather(*waiting)
    return sent


async def _churns(
    client: KubeClient, watcher: Watcher, scheduler: str, load: Load, names: list[str]
) -> float:
    """Replace some pods of a full cluster several times; the median of the seconds."""
    took = []
    for turn in range(CHURNS):
        leaving = names[turn * CHURN : (turn + 1) * CHURN]
        coming = [f"late-{turn}-{number:03}" for number in range(len(leaving))]
        began = time.monotonic()
        async with Writer(32) as writer:
            deletions = (_deletion(client, load, n, one) for n, one in enumerate(leaving))
            await asyncio.gather(*map(writer.submit, deletions))
        await _submit(client, scheduler, load, coming)
        await watcher.all_bound(coming)
        took.append(max(watcher.bound[one] for one in coming) - began)
    return median(took)


def _deletion(client: KubeClient, load: Load, number: int, name: str) -> Any:
    namespace = load.namespace(number)
    return lambda: client.delete(PODS, name, namespace, grace_seconds=0)


def start_ours(cluster: Cluster, nodes: int) -> tuple[str, int]:
    """Start Carrel's scheduler of external pods as a process."""
    _fence(cluster)
    folder = cluster.record.folder / "carrel"
    folder.mkdir()
    url = f"sqlite:///{folder}/ledger.sqlite"
    asyncio.run(_projects(url, nodes * kubernetes_cluster.GPUS // len(PROJECTS)))
    log = folder / "log"
    process = cluster.record.start(
        [sys.executable, "-m", "k8s.standalone"],
        log,
        {
            **os.environ,
            "PYTHONPATH": str(TESTS),
            "KUBECONFIG": str(cluster.kubeconfig),
            "CARREL_DATABASE_URL": url,
            "CARREL_STATE_DIR": str(folder),
            "CARREL_NAMESPACE": SYSTEM_NAMESPACE,
            "CARREL_GPU_IMAGE": "none",
        },
    )
    _await_text(log, "ready", process)
    return OURS, process.pid


def _fence(cluster: Cluster) -> None:
    """Have the cluster refuse bindings of schedulers that do not lead."""
    ask = cluster.plane.ask
    ask("POST", "/api/v1/namespaces", {"metadata": {"name": SYSTEM_NAMESPACE}})
    for manifest in yaml.safe_load_all(POLICY.read_text()):
        plural = {
            "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
            "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
        }[manifest["kind"]]
        ask("POST", f"/apis/admissionregistration.k8s.io/v1/{plural}", manifest)


async def _projects(url: str, gpus: int) -> None:
    ledger = await open_ledger(url, clock=time.time, ids=lambda: uuid.uuid4().hex)
    for name in PROJECTS:
        spec = ProjectSpec(quota=Quota(gpu_milli=1000 * gpus))
        await ledger.create(Project(meta=Meta(name=name), spec=spec))
    await ledger.close()


def start_peer(cluster: Cluster, nodes: int) -> tuple[str, int]:
    """kube-scheduler with its limits raised."""
    del nodes
    program = binaries.peers(lambda line: print(line, flush=True))["kube-scheduler"]
    log = cluster.record.folder / "kube-scheduler.log"
    process = cluster.record.start(
        [
            str(program),
            f"--kubeconfig={cluster.kubeconfig}",
            f"--authentication-kubeconfig={cluster.kubeconfig}",
            f"--authorization-kubeconfig={cluster.kubeconfig}",
            "--kube-api-qps=5000",
            "--kube-api-burst=5000",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={free_port()}",
        ],
        log,
    )
    _await_text(log, "Serving securely", process)
    time.sleep(2)
    return "default-scheduler", process.pid


def _await_text(log: Path, text: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 60
    while text not in log.read_text():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(log.read_text()[-2000:])
        time.sleep(0.1)


def bind(nodes: int, load: Load, rounds: int) -> list[Figure]:
    """Measure both schedulers, one after the other, each of them first in turn."""
    runs: dict[str, list[Run]] = {PEER: [], OURS: []}
    sides = [(PEER, start_peer), (OURS, start_ours)]
    for turn in range(rounds):
        for name, start in sides if turn % 2 == 0 else reversed(sides):
            with kubernetes_cluster.cluster() as cluster:
                runs[name].append(asyncio.run(measure(cluster, start, nodes, load)))
    return figures(together(runs[OURS]), together(runs[PEER]), load)
