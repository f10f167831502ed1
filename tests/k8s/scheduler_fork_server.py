"""The fork server of the schedulers of tests: a process that has imported everything, and forks.

The code of the product is unchanged: a scheduler's transport to the API server is replaced, its
clock may jump, and its lease is short. Schedulers end with the fork server, and it with the tests.
"""

import asyncio
import functools
import importlib
import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.forking import fork_for_each_line, redirect_output
from carrel_scheduler.engines.kubernetes import leadership
from carrel_scheduler.engines.kubernetes.leadership import Leader
from carrel_scheduler.kube import client as kube_client
from carrel_scheduler.ledger.resources.rows import open_rows
from carrel_scheduler.service import cluster as service_cluster
from carrel_scheduler.service.main import main as serve
from k8s.faulty import Faults, FaultyTransport
from k8s.scheduler_processes import LEASE_SECONDS, FaultControl, FaultScript

FENCED_SECONDS: Final = 60.0
"""How long a slow API server may take to apply the fence of a new leader."""


def main() -> None:
    """Run the fork server: it reads a ``FaultScript`` a line, and answers with the pid."""
    asyncio.run(_import_everything())
    fork_for_each_line(_serve)


async def _import_everything() -> None:
    """Import also what is imported at its first use only."""
    importlib.import_module("kubernetes_asyncio.config")
    with tempfile.TemporaryDirectory() as folder:
        rows = await open_rows(f"sqlite:///{folder}/rows", clock=time.time, ids=str)
        await rows.close()


def _serve(line: bytes) -> None:
    """Run a scheduler until the end of this process."""
    script = msgspec.json.decode(line, type=FaultScript)
    redirect_output(str(script.log))
    control = FaultControl(script.control)
    faults = Faults(
        random.Random(script.seed),
        script.kill_at,
        script.after,
        script.trouble,
        over=lambda: control.over,
        killed_at=lambda text: _write(script.kill_file, text),
    )
    real = time.time
    replaced: Any = time
    replaced.time = lambda: real() + control.jump
    replaced = kube_client
    replaced.Transport = lambda credentials: FaultyTransport(credentials, faults)
    replaced = leadership
    replaced.SEEN_SECONDS = FENCED_SECONDS
    replaced = service_cluster
    replaced.Leader = functools.partial(Leader, duration=LEASE_SECONDS)
    os.environ |= _environment(script)
    serve()


def _write(path: Path, text: str) -> None:
    path.write_text(text)


def _environment(script: FaultScript) -> dict[str, str]:
    return {
        "KUBECONFIG": script.kubeconfig,
        "CARREL_ENGINE": "kubernetes",
        "CARREL_STATE_DIR": script.state_dir,
        "CARREL_DATABASE_URL": script.database,
        "CARREL_LISTEN": "127.0.0.1:0",
        "CARREL_NAMESPACE": script.namespace,
        "CARREL_TASK_IMAGE": "none",
        "CARREL_STORAGE_CLAIM": "none",
        "JUPYTERHUB_API_URL": script.hub_url,
        "JUPYTERHUB_API_TOKEN": "unused",
        "JUPYTERHUB_SERVICE_PREFIX": "/services/carrel/",
        "CARREL_LOG_LEVEL": "INFO",
        "CARREL_STALE_GANG_SECONDS": "2",  # a member that was deleted leaves the others at once
    }


if __name__ == "__main__":
    main()
