"""Where schedulers of the tests are born: a process that has imported everything, and forks.

The product knows nothing of this: a life's way to the API server is replaced, its clock may jump,
and its lease is short. No life outlives the nursery, and it not the tests.
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

from benchmarks.forking import fork_for_each_line, say_into
from carrel_scheduler.engines.kubernetes import leadership
from carrel_scheduler.engines.kubernetes.leadership import Leader
from carrel_scheduler.kube import client as kube_client
from carrel_scheduler.ledger.resources.rows import open_rows
from carrel_scheduler.service import cluster as service_cluster
from carrel_scheduler.service.main import main as serve
from k8s.faulty import Faults, FaultyTransport
from k8s.lives import LEASE_SECONDS, Script, Telling

FENCED_SECONDS: Final = 60.0
"""So long a slow server may take to know of a new leader: stories without a fence prove nothing."""


def main() -> None:
    """Be the nursery: a script in a line, the number of a process in a line."""
    asyncio.run(_import_everything())
    fork_for_each_line(_live)


async def _import_everything() -> None:
    """What is imported at its first use only, too."""
    importlib.import_module("kubernetes_asyncio.config")
    with tempfile.TemporaryDirectory() as folder:
        rows = await open_rows(f"sqlite:///{folder}/rows", clock=time.time, ids=str)
        await rows.close()


def _live(line: bytes) -> None:
    """Be a scheduler, until the end of this process."""
    script = msgspec.json.decode(line, type=Script)
    say_into(str(script.log))
    telling = Telling(script.told)
    faults = Faults(
        random.Random(script.seed),
        script.kill_at,
        script.after,
        script.trouble,
        over=lambda: telling.over,
        last_words=lambda text: _write(script.words, text),
    )
    real = time.time
    replaced: Any = time
    replaced.time = lambda: real() + telling.jump
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


def _environment(script: Script) -> dict[str, str]:
    return {
        "KUBECONFIG": script.kubeconfig,
        "CARREL_ENGINE": "kubernetes",
        "CARREL_STATE_DIR": script.seat,
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
