"""The service over a real node, projects on it, and what users do with it from a shell."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

from carrel_schema import names
from k8s import access
from k8s.cluster.loading import Images
from k8s.cluster.node import Node
from k8s.cluster_engines import ClusterEngines, storage_of
from k8s.cluster_service import ClusterService, cluster_service
from k8s.ours import DEPLOY, Kubectl

UNSCHEDULABLE: Final = {"spec": {"unschedulable": True}}
SHELL_SECONDS: Final = 300.0


@asynccontextmanager
async def served(
    node: Node,
    images: Images,
    kubectl: Kubectl,
    folder: Path,
    projects: Sequence[str],
    gpus: int = 4,
    settings: Mapping[str, str] = {},
) -> AsyncIterator[ClusterService]:
    """The service with its own rights; projects of so many GPUs; work runs on that node only."""
    image = images.on(node, "trainer")
    access.give(node.plane)
    rights = access.kubeconfig(node.plane, "carrel-scheduler", folder / "scheduler.json")
    await asyncio.to_thread(kubectl, "apply", "--server-side", "-f", str(DEPLOY / "fencing.yaml"))
    cluster = ClusterEngines(node.kubeconfig, node.name, image.name, storage_of(node))
    with ExitStack() as around:
        alone(node, around)
        try:
            for project in projects:
                await cluster.offer_storage(names.namespace_of(project))
            serving = cluster_service(folder, rights, node.address, image.name, settings)
            async with serving as made:
                for project in projects:
                    await made.ask("POST", "/projects", {"name": project, "quota": {"gpus": gpus}})
                yield made
                await made.end_all(projects)
                await asyncio.to_thread(kubectl, "delete", "projects.carrel.dev", *projects)
        finally:
            await cluster.clean()


def alone(node: Node, around: ExitStack) -> None:
    """Keep the other nodes of the tests from taking pods: none of them has the image."""
    for other in node.plane.get("/api/v1/nodes")["items"]:
        name = other["metadata"]["name"]
        if name != node.name and not other["spec"].get("unschedulable"):
            path = f"/api/v1/nodes/{name}"
            node.plane.ask("PATCH", path, UNSCHEDULABLE)
            around.callback(node.plane.ask, "PATCH", path, {"spec": {"unschedulable": False}})


def finish(node: Node, project: str, uid: str) -> None:
    """Tell a job by its storage to finish."""
    (storage_of(node) / names.namespace_of(project) / "checkpoints" / uid / "finish").touch()


class Shell:
    """``carrel`` as ``ada`` types it.

    Args:
        folder: where she is; her settings lie there, too.
    """

    def __init__(self, service: ClusterService, folder: Path) -> None:
        self._folder = folder
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "CARREL_URL": service.scheduler.url,
            "CARREL_TOKEN": "ada",
            "COLUMNS": "200",
        }

    async def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, output, errors."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "carrel.cli", *words),
            cwd=self._folder,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, error = await asyncio.wait_for(process.communicate(), SHELL_SECONDS)
        return process.returncode or 0, out.decode(), error.decode()

    async def __call__(self, *words: str) -> str:
        """Run it and return what it prints; a failure is one of the test."""
        code, out, error = await self.run(*words)
        assert code == 0, f"carrel {' '.join(words)} ended with {code}: {out}{error}"
        return out

    async def submit(self, name: str, *words: str, **fields: Any) -> None:
        """``carrel submit -f NAME.yaml`` with options."""
        self.write(
            f"{name}.yaml", {"name": name, "cpu_millicores": 50, "grace_seconds": 5, **fields}
        )
        await self("submit", "-f", f"{name}.yaml", *words)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """A file that she has."""
        (self._folder / name).write_text(json.dumps(content))
