"""Projects with their namespaces, made by the scheduler's own account."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.errors import Forbidden
from carrel_scheduler.ledger.resources.ledger import KubernetesLedger
from carrel_scheduler.workloads.namespaces.controller import Namespaces
from carrel_scheduler.workloads.namespaces.manifests import Checkpoints
from carrel_schema.objects import Meta, Project, ProjectSpec
from k8s.access import kubeconfig
from k8s.cluster.control_plane import ControlPlane


@asynccontextmanager
async def with_namespaces(
    plane: ControlPlane, ledger: KubernetesLedger, folder: Path, specs: Mapping[str, ProjectSpec]
) -> AsyncIterator[tuple[KubeClient, list[Project]]]:
    """A client of the scheduler's account, and the projects by these names."""
    config = kubeconfig(plane, "carrel-scheduler", folder / "scheduler.json")
    scheduler = KubeClient(from_kubeconfig(config))
    namespaces = Namespaces(
        ledger,
        scheduler,
        system="carrel-system",
        checkpoints=Checkpoints(size="1Gi"),
        chance=random.random,
    )
    projects = []
    try:
        for name, spec in specs.items():
            projects.append(await ledger.create(Project(meta=Meta(name=name), spec=spec)))
            await until_ensured(namespaces, projects[-1])
        yield scheduler, projects
    finally:
        await scheduler.close()


async def until_ensured(namespaces: Namespaces, project: Project) -> None:
    """Repeat while the API server does not know the role bindings that were just created."""
    refused: Forbidden | None = None
    for _ in range(100):
        try:
            await namespaces.ensure(project)
        except Forbidden as error:
            refused = error
            await asyncio.sleep(0.1)
        else:
            return
    raise AssertionError(f"no rights after 10 s: {refused}")
