"""``carrel up`` itself: every process real.

What is started and stopped has a state folder of its own; what goes on meets the tests in turn.
"""

import asyncio
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiohttp
import psutil
import pytest
import yaml

from benchmarks.ports import free_port
from carrel.client import AsyncClient
from carrel_hub.keys import Keys
from carrel_hub.settings import InstallationSettings
from contract.hub.stack import Person, until, wait_until

SCRAPING = (
    Path(__file__).parents[3] / "deploy/kubernetes/components/monitoring/prometheus/prometheus.yml"
)
START_SECONDS = 300
TIMEOUT_SECONDS = 120


class Up:
    """One state folder and the `carrel up` that runs with it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder.with_suffix(".out")
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *more: str) -> str:
        """Start and wait until it is ready; returns what it printed."""
        command = [sys.executable, "-m", "carrel_hub.up", "--port", str(self.port)]
        command += ["--state-dir", str(self.folder), "--gpus", "4", *more]
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, start_new_session=True, cwd=self.folder.parent
            )
        wait_until(self._is_ready, START_SECONDS, "carrel up")
        return self.out.read_text()

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.out.read_text()
        return "Stop with Ctrl-C" in self.out.read_text()

    def signal(self, number: signal.Signals, seconds: float = TIMEOUT_SECONDS) -> int:
        """Send a signal to `carrel up` alone; returns its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(seconds)

    def children(self) -> list[psutil.Process]:
        """Everything that lives and works with this state folder."""
        mark = str(self.folder)
        found = []
        for process in psutil.process_iter(["cmdline", "environ", "status"]):
            told = process.info["environ"] or {}
            ours = mark in " ".join(process.info["cmdline"] or []) or mark in told.get(
                "CARREL_STATE_DIR", ""
            )
            if ours and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found

    def part(self, what: str) -> psutil.Process:
        """The process of a part, by its command."""
        return next(one for one in self.parts() if what in " ".join(one.cmdline()))

    def parts(self) -> list[psutil.Process]:
        """The processes that `carrel up` watches over."""
        assert self.process is not None
        return psutil.Process(self.process.pid).children()

    @property
    def url(self) -> str:
        """Where people reach it."""
        return f"http://localhost:{self.port}"

    def client(self) -> AsyncClient:
        """The API, with the right of the person at the machine."""
        settings = InstallationSettings.load(self.folder / "hub" / "settings.json")
        keys = Keys.load_or_create(self.folder / "keys.json")
        return AsyncClient(settings.api_url, keys.setup)


@contextmanager
def ended(up: Up) -> Iterator[Up]:
    """Nothing of it goes on afterwards."""
    try:
        yield up
    finally:
        if up.process is not None and up.process.poll() is None:
            up.process.kill()
            up.process.wait(60)
        for process in up.children():
            with suppress(psutil.NoSuchProcess):
                process.kill()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Up]:
    """Not started yet."""
    with ended(Up(tmp_path / "state")) as up:
        yield up


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """With the accounts of ``--demo``; it ends well after all that the tests did to it."""
    with ended(Up(tmp_path_factory.mktemp("up") / "state")) as up:
        up.start("--demo")
        yield up
        assert up.signal(signal.SIGINT) == 0


def passwords(said: str) -> dict[str, str]:
    """Those of the accounts, as they are printed at the first start."""
    return dict(re.findall(r"^ +(ada|grace|admin) +(\S+)", said, re.MULTILINE))


async def sign_in(up: Up, name: str, password: str) -> int:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        stack: Any = SimpleNamespace(url=up.url)
        return await Person(stack, session, name).sign_in(password)


async def nothing_left(up: Up) -> None:
    """Helpers of the parts notice the end of those a moment later."""
    await until(lambda: up.children() == [], TIMEOUT_SECONDS, "the end of its children")


async def test_starts_stops_and_comes_back(fresh: Up) -> None:
    """Stopped by Ctrl-C, by SIGKILL and by SIGTERM: nothing goes on without it."""
    said = await asyncio.to_thread(fresh.start, "--demo")
    assert "4 simulated GPUs" in said
    given = passwords(said)
    assert set(given) == {"ada", "grace", "admin"}
    assert await sign_in(fresh, "ada", given["ada"]) == 200
    async with fresh.client() as client:
        quotas = {one.name: one.quota.gpus for one in await client.list_projects()}
        assert quotas == {"vision": 2, "speech": 2}
        assert await client.members("vision") == ["ada"]
    groups = {os.getpgid(one.pid) for one in fresh.parts()}
    assert len(groups) == 1
    assert await asyncio.to_thread(fresh.signal, signal.SIGINT) == 0
    assert "Stopped. Nothing was running." in fresh.out.read_text()
    await nothing_left(fresh)
    said = await asyncio.to_thread(fresh.start, "--demo")
    assert not any(password in said for password in given.values())
    assert await sign_in(fresh, "ada", given["ada"]) == 200
    await asyncio.to_thread(fresh.signal, signal.SIGKILL)
    await nothing_left(fresh)
    await asyncio.to_thread(fresh.start, "--demo")
    assert await asyncio.to_thread(fresh.signal, signal.SIGTERM) == 0
    await nothing_left(fresh)


async def test_parts_that_die_come_back(running: Up) -> None:
    before = {what: running.part(what) for what in ("carrel_scheduler", "jupyterhub", "traefik")}
    for process in before.values():
        process.kill()
    for what, old in before.items():
        await until(lambda what=what, old=old: _other(running, what, old), TIMEOUT_SECONDS, what)  # type: ignore[misc]
    await until(lambda: _answers(f"{running.url}/hub/api/"), TIMEOUT_SECONDS, "the Hub")
    async with running.client() as client:
        assert {one.name for one in await client.list_projects()} == {"vision", "speech"}


async def test_prometheus_scrapes_it_as_its_file_says(running: Up) -> None:
    key = Keys.load_or_create(running.folder / "keys.json").metrics
    jobs = yaml.safe_load(SCRAPING.read_text())["scrape_configs"]
    assert len(jobs) == 3
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as prometheus:
        for job in jobs:
            assert job["static_configs"] == [{"targets": ["localhost:8000"]}]
            address = running.url + job["metrics_path"]
            async with prometheus.get(address, allow_redirects=False) as answer:
                assert answer.status == 200, job
                assert "# TYPE " in await answer.text()
            async with aiohttp.request("GET", address, allow_redirects=False) as answer:
                assert answer.status in (302, 401, 403), job
        for path in ("/services/carrel/api/v1/workloads", "/hub/api/users", "/hub/api/groups"):
            async with prometheus.get(running.url + path, allow_redirects=False) as answer:
                assert answer.status == 403, path


TAKE = """
import os, socket, sys
os.setgroups([]) if os.geteuid() == 0 else None
os.setuid(65534) if os.geteuid() == 0 else None
with socket.socket() as taker:
    taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        taker.bind(("127.0.0.1", int(sys.argv[1])))
    except OSError as error:
        print(error.strerror)
    else:
        print("taken")
"""


HELD = {
    "proxy": ("traefik.yaml", "/hub/health"),
    "scheduler": ("carrel_scheduler.service", "/services/carrel/health"),
    "hub": ("carrel_hub.hub_process", "/hub/health"),
    "console": ("carrel_hub.console", "/services/console/static/console.css"),
    "gateway": ("carrel_hub.gateway", "/services/gateway/health"),
}


async def test_nobody_takes_the_port_of_a_part_that_is_away(running: Up) -> None:
    """And who asks meanwhile is answered by the part that is started again."""
    ports = InstallationSettings.load(running.folder / "hub" / "settings.json").ports
    for part, (command, path) in HELD.items():
        port, old = getattr(ports, part, running.port), running.part(command)
        old.suspend()  # so that it is not the old one that answers
        url = f"http://127.0.0.1:{port}{path}"
        asked = asyncio.create_task(asyncio.to_thread(_answers, url, TIMEOUT_SECONDS))
        old.kill()
        taker = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-I", "-S", "-c", TAKE, str(port)],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert taker.stdout == "Address already in use\n", part
        # Who waited at the proxy is sent away, and waits outside when they come again.
        answered = await asked
        while part == "proxy" and not answered:
            answered = await asyncio.to_thread(_answers, url)
        assert answered, part
        assert _other(running, command, old), part


def _answers(url: str, seconds: float = 20) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=seconds) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _other(up: Up, what: str, old: psutil.Process) -> bool:
    try:
        return up.part(what).pid != old.pid
    except (StopIteration, psutil.NoSuchProcess):
        return False


async def test_a_scheduler_that_hangs_is_told_at_once_and_comes_back(running: Up) -> None:
    password = passwords(running.out.read_text())["ada"]
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as session:
        stack: Any = SimpleNamespace(url=running.url)
        ada = Person(stack, session, "ada")
        assert await ada.sign_in(password) == 200
        assert (await ada.get("/services/console/"))[0] == 200
        hung = running.part("carrel_scheduler")
        hung.suspend()
        async with asyncio.timeout(30):  # it was over 100 s
            # All at once: the scheduler is started again after 10 s.
            home, jobs, spawn = await asyncio.gather(
                ada.get("/hub/home"), ada.get("/services/console/jobs"), ada.get("/hub/spawn/ada")
            )
        assert (home[0], "The scheduler does not answer" in home[1]) == (200, True)
        assert jobs[0] == 503, jobs[1]
        assert "What is free now cannot be shown" in spawn[1], spawn[1]
        await until(lambda: _other(running, "carrel_scheduler", hung), TIMEOUT_SECONDS, "a new one")
        assert "Scheduler runs but does not answer" in running.out.read_text()
        health = f"{running.url}/services/carrel/health"
        await until(lambda: _answers(health), TIMEOUT_SECONDS, "an answer")
        async with running.client() as client:
            assert await client.members("vision") == ["ada"]
        assert (await ada.get("/services/console/jobs"))[0] == 200
