"""The scheduler's service over the cluster of the tests, and what people see of it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.ports import free_port
from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from contract.schedulers import forked_scheduler

TIMEOUT_SECONDS = 400.0
COME = "access:services!service=gateway"
MEMBERS = {
    "ada": Account("ada", scopes=(USE, ADMIN, COME), groups={"project-vision", "project-speech"}),
    "gate": Account("gate", scopes=("custom:carrel:gateway",)),
}
Status = dict[str, Any]


class ClusterService:
    """The service as ``ada``, a member of both projects, sees it; ``gate`` is its gateway."""

    def __init__(
        self, scheduler: SchedulerProcess, session: aiohttp.ClientSession, hub_url: str
    ) -> None:
        self.scheduler, self._session, self.hub_url = scheduler, session, hub_url

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        url = f"{self.scheduler.api}{path}"
        async with self._session.request(method, url, json=body) as answer:
            text = await answer.text()
            assert answer.status < 300, text
            return await answer.json() if answer.content_type == "application/json" else text

    async def submit(self, project: str, name: str, **fields: Any) -> str:
        """Submit; returns the uid."""
        body = {"name": name, "project": project, "cpu_millicores": 50, **fields}
        made = await self.ask("POST", "/workloads", body)
        return str(made["uid"])

    async def status(self, project: str, name: str) -> Status:
        found = await self.ask("GET", f"/workloads/{project}/{name}")
        return dict(found["status"])

    async def logs(self, project: str, name: str, **query: str) -> str:
        url = f"{self.scheduler.api}/workloads/{project}/{name}/logs"
        async with self._session.get(url, params=query) as answer:
            text = await answer.text()
            assert answer.status in (200, 404), text
            return text if answer.status == 200 else ""  # 404: nothing has run yet

    async def until(self, project: str, name: str, met: Callable[[Status], bool]) -> Status:
        """The workload's status once it is as wanted."""
        status: Status = {}
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    status = await self.status(project, name)
                    if met(status):
                        return status
                    await asyncio.sleep(0.2)
        except TimeoutError:
            log = self.scheduler.log.read_text()[-3000:]
            said = await self.logs(project, name)
            raise AssertionError(f"{name}: {status}\nit said {said[-2000:]!r}\n{log}") from None

    async def phase(self, project: str, name: str, phase: str) -> Status:
        return await self.until(project, name, lambda status: status["phase"] == phase)

    async def said(self, project: str, name: str, wanted: str, **query: str) -> str:
        """The output of a job, once it has the wanted text."""
        text = ""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    text = await self.logs(project, name, **query)
                    if wanted in text:
                        return text
                    await asyncio.sleep(0.2)
        except TimeoutError:
            log = self.scheduler.log.read_text()[-3000:]
            status = await self.status(project, name)
            raise AssertionError(f"{name} said {text!r}, it is {status}\n{log}") from None

    async def restart(self) -> None:
        """SIGKILL the scheduler and start it again; it leads at once, as others are fenced off."""
        await self.scheduler.kill()
        await self.scheduler.start()
        await self.ready()
        assert "no policy that keeps former schedulers" not in self.scheduler.log.read_text()

    async def ready(self) -> None:
        """Wait until it answers: after a kill, once its predecessor's lease has lapsed."""
        try:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    if await self._answers():
                        return
                    await asyncio.sleep(0.2)
        except TimeoutError:
            log = self.scheduler.log.read_text()[-3000:]
            raise AssertionError(f"the scheduler does not answer:\n{log}") from None

    async def _answers(self) -> bool:
        try:
            async with self._session.get(f"{self.scheduler.api}/whoami") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def _delete(self, path: str) -> None:
        async with self._session.delete(f"{self.scheduler.api}{path}") as answer:
            # 404: what it was a part of, or the clock, has removed it meanwhile.
            assert answer.status in (202, 404), await answer.text()

    async def end_all(self, projects: Iterable[str]) -> None:
        """Delete all work, and wait until nothing of it is left."""
        for project in projects:
            listed = f"/workloads?project={project}"
            for item in (await self.ask("GET", listed))["items"]:
                await self._delete(f"/workloads/{project}/{item['name']}")
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    if not (await self.ask("GET", listed))["items"]:
                        break
                    await asyncio.sleep(0.2)


@asynccontextmanager
async def cluster_service(
    state_dir: Path,
    kubeconfig: Path,
    address: str,
    image: str,
    settings: Mapping[str, str] = {},
) -> AsyncIterator[ClusterService]:
    """A service that listens where pods reach it.

    Args:
        state_dir: of the service.
        kubeconfig: of the cluster.
        address: of this host on the pods' network.
        image: of work that names none.
        settings: more of the service's variables.
    """
    async with (
        StandInHub(MEMBERS) as hub,
        aiohttp.ClientSession(headers={"Authorization": "token ada"}) as session,
    ):
        port = free_port()
        more = {
            "CARREL_ENGINE": "kubernetes",
            "CARREL_LISTEN": f"{address}:{port}",
            "CARREL_TASK_IMAGE": image,
            "CARREL_TASK_PULL_POLICY": "Never",
            "CARREL_STORAGE_SIZE": "1Gi",
            "KUBECONFIG": str(kubeconfig),
            **settings,
        }
        scheduler = forked_scheduler(state_dir, hub.url, "ada", more=more)
        scheduler.url = f"http://{address}:{port}/services/carrel"
        scheduler.api = f"{scheduler.url}/api/v1"
        await scheduler.start()
        try:
            made = ClusterService(scheduler, session, hub.url)
            await made.ready()
            yield made
        finally:
            await scheduler.stop()
