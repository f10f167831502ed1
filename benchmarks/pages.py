"""Pages: how quickly the console and the command line answer with many jobs.

A real scheduler service with SQLite holds so many jobs, of which a few run; the console asks it as
it does for anybody, and a person who owns all of them opens each page several times. The middle of
the times is told, from the request to the last byte. `carrel list jobs` is a process of its own,
with its start.

``python -m benchmarks.pages [--json] [--jobs 5000] [--rounds 5]``
"""

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Final

import aiohttp
from tornado.testing import bind_unused_port

from benchmarks.report import Figure, median, show
from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from carrel.client import AsyncClient
from carrel_hub.console.app import http_server, hub_oauth, make_app
from carrel_hub.console.settings import Settings

PREFIX: Final = "/services/console/"
PAGES: Final = ("", "jobs", "jobs?whose=all&search=job-4", "cluster", "queue", "projects")
JOB_PAGES: Final = ("jobs/vision/job-0", "jobs/vision/job-4999", "projects/vision")
PAGE_GOAL_MS: Final = 150.0
LIST_GOAL_SECONDS: Final = 0.3
RUNNING: Final = 8
SETTLE_SECONDS: Final = 20.0


async def fill(url: str, jobs: int) -> None:
    """Make the project and submit so many jobs."""
    async with AsyncClient(url, "root-token") as root:
        await root.create_project({"name": "vision", "quota": {"gpus": 0}})
    async with AsyncClient(url, "ada-token", timeout=120.0) as ada:
        bodies = (
            {
                "project": "vision",
                "name": f"job-{number}",
                "cpu_millicores": 1000,
                "command": ["sleep", "3600"],
            }
            for number in range(jobs)
        )
        answers = await ada.submit_many(bodies)
        refused = [one for one in answers if not one.accepted]
        if refused:
            raise RuntimeError(f"{len(refused)} were refused: {refused[0].problem}")


async def page_times(url: str, api: str, pages: list[str], rounds: int) -> dict[str, float]:
    """Milliseconds of each page, the middle of ``rounds``; the first opening is not counted."""
    sockets, port = bind_unused_port(address="127.0.0.1")
    settings = Settings(PREFIX, "/hub/", "127.0.0.1", port, api, "console-token")
    auth = hub_oauth(settings, api_url=url, oauth_client_id="service-console", access_scopes={USE})
    app = make_app(settings, auth)
    server = http_server(app)
    server.add_socket(sockets)
    found = {}
    try:
        headers = {"Authorization": "token ada-token"}
        async with token_session(headers) as session:
            for page in pages:
                times = []
                for _ in range(rounds + 1):
                    began = perf_counter()
                    async with session.get(f"http://127.0.0.1:{port}{PREFIX}{page}") as answer:
                        text = await answer.text()
                        if answer.status != 200:
                            raise RuntimeError(f"{page}: {answer.status} {text[:500]}")
                    times.append((perf_counter() - began) * 1000)
                found[page] = median(times[1:])
    finally:
        server.stop()
        await server.close_all_connections()
        await app.close()
    return found


def token_session(headers: dict[str, str]) -> aiohttp.ClientSession:
    """A session without cookies: each page is asked for with a token."""
    return aiohttp.ClientSession(headers=headers, cookie_jar=aiohttp.DummyCookieJar())


async def list_seconds(url: str, rounds: int) -> float:
    """Seconds of `carrel list jobs`, the middle of ``rounds``."""
    environment = {**os.environ, "CARREL_URL": url, "CARREL_TOKEN": "ada-token"}
    times = []
    for _ in range(rounds + 1):
        began = perf_counter()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "carrel.cli", "list", "jobs", "-p", "vision"),
            env=environment,
            stdout=asyncio.subprocess.PIPE,
        )
        await process.communicate()
        if process.returncode:
            raise RuntimeError(f"carrel list jobs ended with {process.returncode}")
        times.append(perf_counter() - began)
    return median(times[1:])


async def measure(jobs: int, rounds: int) -> list[Figure]:
    """The figures of one installation."""
    accounts = {
        "service-token": Account("carrel", (USE, ADMIN)),
        "root-token": Account("root", (USE, ADMIN)),
        "ada-token": Account("ada", (USE,), {"project-vision"}),
    }
    with tempfile.TemporaryDirectory(prefix="carrel-pages-") as folder:
        async with StandInHub(accounts) as hub:
            scheduler = SchedulerProcess(
                Path(folder),
                hub.url,
                "service-token",
                module="benchmarks.simulated_service",
                more={"CARREL_SIMULATED_CPUS": str(RUNNING)},
            )
            await scheduler.start()
            try:
                async with token_session({"Authorization": "token root-token"}) as session:
                    await scheduler.ready(session)
                await fill(scheduler.url, jobs)
                await asyncio.sleep(SETTLE_SECONDS)
                last = JOB_PAGES[1].replace("4999", str(jobs - 1))
                pages = [*PAGES, JOB_PAGES[0], last, JOB_PAGES[2]]
                times = await page_times(hub.url, scheduler.url, pages, rounds)
                seconds = await list_seconds(scheduler.url, rounds)
            finally:
                await scheduler.stop()
    figures = [
        Figure(f"console /{page}", value, "ms", f"<= {PAGE_GOAL_MS:.0f}", value <= PAGE_GOAL_MS)
        for page, value in times.items()
    ]
    met = seconds <= LIST_GOAL_SECONDS
    return [*figures, Figure("carrel list jobs", seconds, "s", f"<= {LIST_GOAL_SECONDS}", met)]


def main() -> None:
    """Read the arguments, measure, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    figures = asyncio.run(measure(asked.jobs, asked.rounds))
    show(f"Pages with {asked.jobs:,} jobs", figures, as_json=asked.json)
    sys.exit(0 if all(one.met for one in figures) else 1)


if __name__ == "__main__":
    main()
