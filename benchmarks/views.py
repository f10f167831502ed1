"""Live views: what two hundred of them cost the scheduler's service that feeds them.

A real scheduler service with SQLite runs 200 trainings as processes; each reports a value and
prints a line now and then. Twenty people then look at ten of them each, in kernels whose messages
are counted instead of sent. Processor time of the service is read from ``/proc`` over the same
span three times: nobody looks, all look, and all look at jobs that do nothing.

``python -m benchmarks.views [--json] [--views 200] [--seconds 20] [--every 10]``
"""

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.report import Figure, show
from benchmarks.running_scheduler import running_scheduler
from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.standin_hub import USE, Account

PEOPLE = 20
GOAL_CORES = 0.25
TICKS = os.sysconf("SC_CLK_TCK")
PRINTING = "trap 'echo step' USR1; sleep 3600 & while :; do wait $!; done"


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Jobs:
    """The running trainings: their tokens, and what they do when told."""

    def __init__(self, session: aiohttp.ClientSession, api: str) -> None:
        self._session, self._api = session, api
        self.running: list[tuple[str, int, str]] = []

    async def begin(self, count: int) -> None:
        """Submit and wait until all run."""
        for number in range(count):
            body = {"project": "vision", "name": f"job-{number}", "memory_bytes": 1 << 24,
                    "cpu_millicores": 1,
                    "command": ["/bin/sh", "-c", PRINTING]}  # fmt: skip
            async with self._session.post(f"{self._api}/workloads", json=body) as answer:
                if answer.status != 201:
                    raise RuntimeError(await answer.text())
        async with asyncio.timeout(180):
            while len(self.running) < count:
                await asyncio.sleep(2.0)
                self.running = await self._found(count)

    async def _found(self, count: int) -> list[tuple[str, int, str]]:
        parameters = {"phase": "running", "limit": str(max(count, 1))}
        async with self._session.get(f"{self._api}/workloads", params=parameters) as answer:
            items = (await answer.json())["items"]
        return [(item["name"], pid, token(pid)) for item in items for pid in (pid_of(item),) if pid]

    async def work(self, every: float) -> None:
        """Let each task report and print once in so many seconds, evenly spread, for ever."""
        step = 0
        while True:
            for name, pid, secret in self.running:
                began = asyncio.get_running_loop().time()
                report = {
                    "step": step,
                    "done": step,
                    "total": 1000,
                    "metrics": {"loss": 1 / (step + 1)},
                }
                async with self._session.post(
                    f"{self._api}/workloads/vision/{name}/reports", json=report,
                    headers={"Authorization": f"token {secret}"},
                ) as answer:  # fmt: skip
                    if answer.status != 204:
                        raise RuntimeError(await answer.text())
                os.kill(pid, 10)
                spent = asyncio.get_running_loop().time() - began
                await asyncio.sleep(max(0.0, every / len(self.running) - spent))
            step += 1


def pid_of(item: dict[str, Any]) -> int:
    return int(item["status"]["tasks"][0]["pid"]) if item["status"]["tasks"] else 0


def token(pid: int) -> str:
    """The token with which the task reports."""
    pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    found = dict(pair.partition(b"=")[::2] for pair in pairs)
    return found[b"CARREL_TASK_TOKEN"].decode()


async def span(pid: int, seconds: float) -> float:
    """Cores that a process uses over a span."""
    loop, began = asyncio.get_running_loop(), cpu_seconds(pid)
    since = loop.time()
    await asyncio.sleep(seconds)
    return (cpu_seconds(pid) - began) / (loop.time() - since)


async def kernels(url: str, views: int) -> asyncio.subprocess.Process:
    """A process that holds all views; it prints a line when they stand, and when asked."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.view_kernels", url, str(views), str(PEOPLE),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    await told(process)
    return process


async def told(process: asyncio.subprocess.Process) -> dict[str, float]:
    """The next line that the kernels print."""
    if process.stdout is None:
        raise RuntimeError("the kernels have no output")
    line = await asyncio.wait_for(process.stdout.readline(), 120)
    found: dict[str, float] = json.loads(line)
    return found


async def counted(process: asyncio.subprocess.Process) -> dict[str, float]:
    """Messages and processor time of the kernels since asked last."""
    if process.stdin is None:
        raise RuntimeError("the kernels have no input")
    process.stdin.write(b"\n")
    return await told(process)


async def measured(
    scheduler: SchedulerProcess, jobs: Jobs, views: int, seconds: float, every: float
) -> list[Figure]:
    pid = scheduler.pid
    working = asyncio.create_task(jobs.work(every))
    await asyncio.sleep(every)
    alone = await span(pid, seconds)
    looking = await kernels(scheduler.url, views)
    try:
        await asyncio.sleep(every)
        await counted(looking)
        watched = await span(pid, seconds)
        busy = await counted(looking)
        working.cancel()
        await asyncio.sleep(3.0)
        await counted(looking)
        still = await span(pid, seconds)
        idle = await counted(looking)
    finally:
        looking.kill()
        await looking.wait()
    return [
        Figure(f"service, {views} live views of {PEOPLE} people", watched, "cores", "<= 0.25",
               watched <= GOAL_CORES),
        Figure("the same jobs, nobody looks", alone, "cores", "-"),
        Figure("service, the same views of jobs that do nothing", still, "cores", "-"),
        Figure("updates of a view", busy["messages"] / views / seconds, "a second", "<= 2",
               busy["messages"] / views / seconds <= 2),
        Figure("updates of views of jobs that do nothing", idle["messages"], "in all", "0",
               idle["messages"] == 0),
        Figure("all kernels together", busy["cpu_seconds"] / seconds, "cores", "-"),
    ]  # fmt: skip


async def measure(views: int, seconds: float, every: float) -> list[Figure]:
    people = {
        f"t{number}": Account(f"person-{number}", (USE,), {"project-vision"})
        for number in range(PEOPLE)
    }
    folder = Path(tempfile.mkdtemp(prefix="carrel-views-", dir="/var/tmp"))
    folder.chmod(0o755)
    state = folder / "state"
    try:
        async with running_scheduler(state, folder=folder, people=people) as (scheduler, session):
            await session.post(f"{scheduler.api}/projects", json={"name": "vision"})
            jobs = Jobs(session, scheduler.api)
            await jobs.begin(views)
            return await measured(scheduler, jobs, views, seconds, every)
    finally:
        shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--views", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--every", type=float, default=10.0)
    given = parser.parse_args()
    figures = asyncio.run(measure(given.views, given.seconds, given.every))
    show("Live views", figures, as_json=given.json)


if __name__ == "__main__":
    main()
