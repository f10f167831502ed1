"""Pages: how quickly the console and the command line answer with many jobs.

A real scheduler service with SQLite holds so many jobs, of which a few run; the console asks it as
it does for anybody, and a person who owns all of them opens each page several times. The middle of
the times is told, from the request to the last byte. `carrel list jobs` is a process of its own,
with its start.

With ``--history`` the ledger holds twelve months instead: work of 5,000 users in 300 projects,
twenty pieces of each, and samples of every project for every hour; an administrator opens the
pages about the past.

``python -m benchmarks.pages [--json] [--jobs 5000] [--rounds 5] [--history]``
"""

import argparse
import asyncio
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Final

import aiohttp
import msgspec
from tornado.testing import bind_unused_port

from benchmarks.report import Figure, median, show
from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub
from carrel.client import AsyncClient
from carrel_hub.console.app import http_server, hub_oauth, make_app
from carrel_hub.console.settings import ConsoleSettings
from carrel_schema.history import PlaceUse
from carrel_schema.samples import Sample

PREFIX: Final = "/services/console/"
PAGES: Final = ("", "jobs", "jobs?whose=all&search=job-4", "cluster", "queue", "projects")
JOB_PAGES: Final = ("jobs/vision/job-0", "jobs/vision/job-4999", "projects/vision")
PAGE_GOAL_MS: Final = 150.0
LIST_GOAL_SECONDS: Final = 0.3
HISTORY_PAGES: Final = (
    *("", "jobs", "projects", "projects/project-7", "policies", "secrets", "access", "alerts"),
    *("audit", "analytics?days=365", "analytics?subject=project/project-7&days=365"),
    *("analytics-curves?days=365", "usage", "usage?days=365", "usage?by=user&days=365"),
    *("usage-curves?days=365", "usage?by=gpu-type&days=365"),
    "usage-curves?by=department&days=365",
)
HISTORY_GOAL_MS: Final = 300.0
USERS: Final = 5000
PROJECTS: Final = 300
DEPARTMENTS: Final = 10
RUNS_OF_A_USER: Final = 20
YEAR_SECONDS: Final = 365 * 86_400
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


async def fill_history(scheduler: SchedulerProcess, folder: Path) -> None:
    """Make the projects, and write the past of a year while the scheduler is stopped."""
    async with AsyncClient(scheduler.url, "root-token") as root:
        for number in range(DEPARTMENTS):
            await root.put_department(f"department-{number}", {"quota": {"gpus": 0}})
        for number in range(PROJECTS):
            department = f"department-{number % DEPARTMENTS}"
            fields = {"name": f"project-{number}", "department": department, "quota": {"gpus": 0}}
            await root.create_project(fields)
    await scheduler.stop()
    await asyncio.to_thread(write_past, folder / "carrel.sqlite")
    await scheduler.start()
    began = perf_counter()
    while not await asyncio.to_thread(is_aggregated, folder / "carrel.sqlite"):  # noqa: ASYNC110
        await asyncio.sleep(1)
    print(f"The year was summed up {perf_counter() - began:.0f} s after the start.")


def is_aggregated(database: Path) -> bool:
    """Whether the scheduler has summed up all transitions, as it does beside its work."""
    query = "SELECT (SELECT max(id) FROM transitions) = (SELECT max(last_id) FROM workload_totals)"
    with sqlite3.connect(database) as connection:
        (whole,) = connection.execute(query).fetchone()
    connection.close()
    return bool(whole)


def write_past(database: Path) -> None:
    """Transitions of all work, and samples of each hour, with a fixed seed."""
    draw, now = random.Random(7), int(time.time())
    began = now - YEAR_SECONDS
    columns = (
        *("at", "epoch", "workload_uid", "workload", "project", "user", "kind", "attempt"),
        *("from_phase", "to_phase", "gpu_milli", "cpu_milli", "memory_bytes", "borrowed"),
        *("node", "places", "devices"),
    )

    def runs() -> Iterator[tuple[object, ...]]:
        for number in range(USERS * RUNS_OF_A_USER):
            user, project = number % USERS, number % PROJECTS
            at = began + draw.random() * YEAR_SECONDS
            end = min(at + draw.expovariate(1 / 7200), now - 1)
            name = (f"u{number}", f"run-{number}", f"project-{project}", f"user-{user}", "training")
            held = (1000 * draw.choice((1, 1, 2, 4)), 4000, 2**33)
            place = PlaceUse(
                gpu_type=draw.choice(("A100", "H100", "L40S")),
                node_group=draw.choice(("", "large")),
                gpu_milli=held[0],
                cpu_milli=held[1],
                memory_bytes=held[2],
            )
            where = ("n1", msgspec.json.encode([place]).decode(), "[0]")
            yield (at, 1, *name, 0, "pending", "running", *held, draw.random() < 0.3, *where)
            yield (end, 1, *name, 0, "running", "succeeded", 0, 0, 0, False, "n1", "[]", "[]")

    def samples() -> Iterator[tuple[object, ...]]:
        subjects = ["cluster", *(f"project/project-{number}" for number in range(PROJECTS))]
        content = msgspec.json.encode(Sample(gpus=64, gpus_allocated=40.5, running=12)).decode()
        for at in range(began - began % 3600, now, 3600):
            for subject in subjects:
                yield 3600, subject, at, content

    with sqlite3.connect(database) as connection:
        marks = ", ".join("?" * len(columns))
        named = ", ".join(f'"{name}"' for name in columns)
        connection.executemany(f"INSERT INTO transitions ({named}) VALUES ({marks})", runs())  # noqa: S608 - names of this file
        connection.executemany("INSERT INTO samples VALUES (?, ?, ?, ?)", samples())
    connection.close()


async def page_times(
    url: str, api: str, pages: list[str], rounds: int, *, who: str = "ada"
) -> dict[str, float]:
    """Milliseconds of each page, the middle of ``rounds``; the first opening is not counted."""
    sockets, port = bind_unused_port(address="127.0.0.1")
    settings = ConsoleSettings(PREFIX, "/hub/", "127.0.0.1", port, api, "console-token")
    auth = hub_oauth(settings, api_url=url, oauth_client_id="service-console", access_scopes={USE})
    app = make_app(settings, auth)
    server = http_server(app)
    server.add_socket(sockets)
    found = {}
    try:
        headers = {"Authorization": f"token {who}-token"}
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


async def measure(jobs: int, rounds: int, *, history: bool) -> list[Figure]:
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
                if history:
                    await fill_history(scheduler, Path(folder))
                    async with token_session({"Authorization": "token root-token"}) as session:
                        await scheduler.ready(session)
                    pages = [*HISTORY_PAGES]
                    times = await page_times(hub.url, scheduler.url, pages, rounds, who="root")
                    return figures_of(times, HISTORY_GOAL_MS)
                await fill(scheduler.url, jobs)
                await asyncio.sleep(SETTLE_SECONDS)
                last = JOB_PAGES[1].replace("4999", str(jobs - 1))
                pages = [*PAGES, JOB_PAGES[0], last, JOB_PAGES[2]]
                times = await page_times(hub.url, scheduler.url, pages, rounds)
                seconds = await list_seconds(scheduler.url, rounds)
            finally:
                await scheduler.stop()
    met = seconds <= LIST_GOAL_SECONDS
    return [
        *figures_of(times, PAGE_GOAL_MS),
        Figure("carrel list jobs", seconds, "s", f"<= {LIST_GOAL_SECONDS}", met),
    ]


def figures_of(times: dict[str, float], goal_ms: float) -> list[Figure]:
    """The times of pages, and whether each is within the goal."""
    return [
        Figure(f"console /{page}", value, "ms", f"<= {goal_ms:.0f}", value <= goal_ms)
        for page, value in times.items()
    ]


def main() -> None:
    """Read the arguments, measure, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--history", action="store_true")
    asked = parser.parse_args()
    figures = asyncio.run(measure(asked.jobs, asked.rounds, history=asked.history))
    title = "Pages with a past of twelve months" if asked.history else f"{asked.jobs:,} jobs"
    show(title, figures, as_json=asked.json)
    sys.exit(0 if all(one.met for one in figures) else 1)


if __name__ == "__main__":
    main()
