"""Submissions: how many a second with a durable log, and how soon a process runs.

* *rate*: a real scheduler service on loopback with SQLite (WAL, full sync); concurrent clients
  post trainings that have to wait (the GPUs are taken), so each is validated, authorised, durably
  stored, queued, decided on and explained. Peer: Slurm, which states
  500 simple batch jobs a second.
* *latency*: an idle machine; from before the request to the first instruction of the command,
  against forking and executing the same command directly, in turns in the same run.
* *folder*: the same with a working folder of 50 MB that was sent before and is unchanged, against
  an empty one, in turns: listing and hashing it here, and fetching it in the task.

``python -m benchmarks.submit [--json] [--jobs 2000] [--runs 25]``
"""

import argparse
import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.report import Figure, median, show
from benchmarks.running_scheduler import ADA, running_scheduler
from benchmarks.scheduler_process import SchedulerProcess
from carrel.client import AsyncClient

SLURM_RATE = 500.0
LATENCY_GOAL_SECONDS = 0.150
FOLDER_GOAL_SECONDS = 1.0
FOLDER_FILES, FILE_BYTES = 200, 250_000
CLIENTS = 32


def stamp_command(path: Path) -> list[str]:
    """A command whose first act is to write down the time."""
    return ["/bin/sh", "-c", f"date +%s.%N > {path}.part && mv {path}.part {path}"]


def job(name: str, command: list[str], gpus: int = 1) -> dict[str, Any]:
    return {
        "name": name,
        "project": "vision",
        "command": command,
        "gpus": gpus,
        "cpu_millicores": 10,
        "memory_bytes": 1 << 28,
    }


async def post(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> None:
    async with session.post(url, json=body) as answer:
        if answer.status != 201:
            raise RuntimeError(f"{answer.status}: {await answer.text()}")


async def rate(scheduler: SchedulerProcess, session: aiohttp.ClientSession, jobs: int) -> float:
    """Acknowledged submissions a second."""
    url = f"{scheduler.api}/workloads"
    await post(session, url, job("holder", ["sleep", "600"], gpus=4))
    names = iter(range(jobs))

    async def client() -> None:
        for number in names:
            await post(session, url, job(f"job-{number}", ["true"]))

    began = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return jobs / (time.perf_counter() - began)


async def written(path: Path) -> float:
    """The time that the command wrote down."""
    for _ in range(4000):
        if path.exists():
            return float(path.read_text())
        await asyncio.sleep(0.005)
    raise RuntimeError(f"{path} was not written within 20 s")


async def latencies(
    scheduler: SchedulerProcess, session: aiohttp.ClientSession, folder: Path, runs: int
) -> tuple[list[float], list[float]]:
    """Seconds from asking to running: through the scheduler, and by fork and exec alone."""
    ours, bare = [], []
    for run in range(runs):
        path = folder / f"bare-{run}"
        began = time.time()
        process = await asyncio.create_subprocess_exec(*stamp_command(path))
        bare.append(await written(path) - began)
        await process.wait()
        path = folder / f"ours-{run}"
        body = job(f"latency-{run}", stamp_command(path))
        body["volumes"] = [{"source": str(folder), "destination": str(folder)}]
        began = time.time()
        await post(session, f"{scheduler.api}/workloads", body)
        ours.append(await written(path) - began)
        await asyncio.sleep(0.1)
    return ours, bare


async def folders(
    client: AsyncClient, below: Path, stamps: Path, runs: int
) -> tuple[list[float], list[float]]:
    """Seconds from asking to running, with a folder of 50 MB and with an empty one."""
    full, empty = below / "full", below / "empty"
    for number in range(FOLDER_FILES):
        file = full / f"part-{number % 10}" / f"{number}.bin"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(FILE_BYTES))
    empty.mkdir()
    await client.upload_code("vision", full)
    found: tuple[list[float], list[float]] = ([], [])
    for run in range(runs):
        for folder, seconds in zip((full, empty), found, strict=True):
            path = stamps / f"{folder.name}-{run}"
            began = time.time()
            digest, _ = await client.upload_code("vision", folder)
            body = job(path.name, stamp_command(path)) | {"code": {"digest": digest}}
            body["volumes"] = [{"source": str(stamps), "destination": str(stamps)}]
            await client.create_workload(body)
            seconds.append(await written(path) - began)
            await asyncio.sleep(0.1)
    return found


async def measure(jobs: int, runs: int) -> list[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="carrel-submit-", dir="/var/tmp"))
    folder.chmod(0o755)
    state, stamps = folder / "state", folder / "stamps"
    stamps.mkdir()
    stamps.chmod(0o777)
    try:
        async with running_scheduler(state, folder=folder) as (scheduler, session):
            project = {"name": "vision", "quota": {"gpus": 4}}
            await post(session, f"{scheduler.api}/projects", project)
            ours, bare = await latencies(scheduler, session, stamps, runs)
            async with AsyncClient(scheduler.url, ADA) as client:
                full, empty = await folders(client, folder, stamps, max(3, runs // 5))
            per_second = await rate(scheduler, session, jobs)
    finally:
        shutil.rmtree(folder)
    beyond = median(ours) - median(bare)
    more = median(full) - median(empty)
    return [
        Figure(
            "submissions with a durable log, as a ratio to 500/s",
            per_second / SLURM_RATE,
            f"x ({per_second:,.0f}/s)",
            ">= 1",
            per_second >= SLURM_RATE,
        ),
        Figure(
            "submit to running beyond bare fork and exec, p50",
            beyond * 1000,
            f"ms (bare {median(bare) * 1000:.1f} ms)",
            "<= 150",
            beyond <= LATENCY_GOAL_SECONDS,
        ),
        Figure(
            "submit from an unchanged folder of 50 MB beyond one from an empty folder, p50",
            more,
            f"s (empty {median(empty):.2f} s)",
            "<= 1",
            more <= FOLDER_GOAL_SECONDS,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--jobs", type=int, default=2000)
    parser.add_argument("--runs", type=int, default=25)
    arguments = parser.parse_args()
    figures = asyncio.run(measure(arguments.jobs, arguments.runs))
    show("Submissions", figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
