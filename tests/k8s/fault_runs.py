"""Runs of fault stories on one API server, which they may kill and compact."""

import asyncio
import random
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.error import HTTPError

import yaml

from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from k8s.cluster.plane import ControlPlane
from k8s.cluster.records import Record
from k8s.fault_site import FaultSite, database, fault_site
from k8s.faults import LONG_SECONDS, Break, Story
from k8s.ours import DEPLOY, Kubectl, install_kinds, make_namespace
from k8s.restartable_server import RestartableServer
from k8s.scheduler_processes import SchedulerForkServer
from k8s.scheduler_replicas import SchedulerReplica

_GROUP: Final = "admissionregistration.k8s.io"
KILLS_APART: Final = 10
"""One story in so many has its API server killed, which takes seconds."""


@dataclass(frozen=True, slots=True)
class StoryResult:
    """The result of a story.

    Attributes:
        settled: how long settling took, in seconds.
        kills: the writes at which schedulers were killed, in words.
        processes: how many processes there were.
        happened: what happened, in order.
        logs: what the schedulers said, where settling took long.
    """

    settled: float
    kills: tuple[str, ...]
    processes: int
    happened: tuple[str, ...]
    logs: str = ""


class Runs:
    """An API server with our kinds and the fencing policy, for one story after the other.

    Attributes:
        plane: to ask it as the admin, who ``kubeconfig`` is of.
        namespace: of the lease.
    """

    def __init__(self, programs: Mapping[str, Path], record: Record) -> None:
        self._fork_server = SchedulerForkServer()
        self._server = RestartableServer(programs, record)
        self._server.start()
        self.plane = self._server.plane
        self.kubeconfig = self.plane.kubeconfig(record.folder / "kubeconfig")
        self.namespace = "carrel-system"
        install(self.plane, Kubectl(programs["kubectl"], self.kubeconfig), self.namespace)

    async def tell(self, seed: int) -> StoryResult:
        """Run one story. Raises what it finds wrong."""
        breaks: dict[str, Break] = {"compaction": self._compact}
        if seed % KILLS_APART == 0:
            breaks["server killed"] = self._kill
        chance = random.Random(seed)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            async with (
                fault_site(self.kubeconfig, folder, self.namespace) as here,
                StandInHub({"ada": Account("ada", (USE, ADMIN))}) as hub,
            ):
                replicas = (
                    self._replica("first", folder, hub.url, chance),
                    self._replica("second", folder, hub.url, chance),
                )
                try:
                    for replica in replicas:
                        await replica.open()
                    story = Story(here, replicas, chance, breaks)
                    settled = await story.tell()
                    logs = _logs(folder) if settled > LONG_SECONDS else ""
                except BaseException as error:
                    error.add_note(_logs(folder))
                    raise
                finally:
                    for replica in replicas:
                        await replica.close()
        kills = tuple(kill for replica in replicas for kill in replica.kills)
        return StoryResult(
            settled, kills, sum(replica.number for replica in replicas), tuple(story.told), logs
        )

    @asynccontextmanager
    async def without_faults(self) -> AsyncIterator[FaultSite]:
        """The objects of a story with one scheduler that nothing happens to."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            async with (
                fault_site(self.kubeconfig, folder, self.namespace) as here,
                StandInHub({"ada": Account("ada", (USE, ADMIN))}) as hub,
            ):
                replica = self._replica("only", folder, hub.url, random.Random(0))
                try:
                    await replica.open()
                    replica.start(faulty=False)
                    yield here
                except BaseException as error:
                    error.add_note(_logs(folder))
                    raise
                finally:
                    await replica.close()

    def close(self) -> None:
        """Let go; the API server ends with the record."""
        self._fork_server.close()

    def _replica(
        self, name: str, folder: Path, hub_url: str, chance: random.Random
    ) -> SchedulerReplica:
        own = random.Random(chance.random())
        rows = database(folder)
        return SchedulerReplica(
            name, self._fork_server, self.plane, folder, rows, self.namespace, hub_url, own
        )

    async def _compact(self) -> None:
        with suppress(HTTPError):  # nothing was written since the last time
            await asyncio.to_thread(self._server.compact)

    async def _kill(self) -> None:
        await asyncio.to_thread(self._server.kill)
        await asyncio.to_thread(self._server.start)


def install(plane: ControlPlane, kubectl: Kubectl, namespace: str) -> None:
    """Install what a scheduler needs: its namespace, Carrel's kinds, the fencing policy."""
    make_namespace(plane, namespace)
    install_kinds(plane, kubectl)
    policy, binding = yaml.safe_load_all((DEPLOY / "fencing.yaml").read_text())
    plane.ask("POST", f"/apis/{_GROUP}/v1/validatingadmissionpolicies", policy)
    plane.ask("POST", f"/apis/{_GROUP}/v1/validatingadmissionpolicybindings", binding)


def _logs(folder: Path) -> str:
    """The ends of what the schedulers said."""
    logs = sorted(folder.glob("*/log-*"))
    return "\n".join(f"--- {log.parent.name} {log.name}\n{log.read_text()[-4000:]}" for log in logs)
