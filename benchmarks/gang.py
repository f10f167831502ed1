"""A gang of 16 workers: from before its submission until all have met, against a start by hand.

Both sides run the same program in turns of the same run: Python workers that import NumPy, as the
smallest training does, and meet at the first one's port; it writes down when the last has come. By
hand they are started one after the other with the variables that they need, which somebody has to
think of. Carrel validates, records, decides, and gives each an account, limits, a log, a view of
the file system and a supervisor. The same with workers that import nothing shows what that costs
where there is nothing to do; it has no goal.

``python -m benchmarks.gang [--json] [--workers 16] [--runs 7]``
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from benchmarks.ports import free_port
from benchmarks.report import Figure, median, show
from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.stacks import end_all_below
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub

GOAL = 1.3
TIMEOUT_SECONDS = 120.0
WORKER = """
import os, socket, time
if os.environ["LOAD"]:
    __import__(os.environ["LOAD"])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(where, backlog=size) as server:
        others = [server.accept()[0] for _ in range(size - 1)]
    met = os.environ["MET"]
    with open(met + ".part", "w") as file:
        file.write(repr(time.time()))
    os.rename(met + ".part", met)
else:
    while True:
        try:
            socket.create_connection(where).recv(1)
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
"""


@dataclass
class Bench:
    """A running service, and the folder that everything lies in."""

    scheduler: SchedulerProcess
    session: aiohttp.ClientSession
    folder: Path
    workers: int
    turns: int = 0

    def next_file(self) -> Path:
        """The file in which the first worker records that all have met."""
        self.turns += 1
        return self.folder / f"met-{self.turns}"

    async def by_hand(self, load: str) -> float:
        """Seconds until all have met."""
        met, port = self.next_file(), free_port()
        shared = {"LOAD": load, "MET": str(met), "WORLD_SIZE": str(self.workers)}
        shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        began = time.time()
        started = start_all(shared, self.workers)
        seconds = await written(met) - began
        for process in started:
            await asyncio.to_thread(process.wait)
        return seconds

    async def by_carrel(self, load: str) -> float:
        """Seconds from before the submission until all have met."""
        met = self.next_file()
        body = {
            "name": met.name,
            "project": "vision",
            "kind": "distributed",
            "tasks": self.workers,
            "cpu_millicores": 100,
            "memory_bytes": 1 << 28,
            "command": [sys.executable, "-c", WORKER],
            "environment": {"LOAD": load, "MET": str(met)},
            "volumes": [{"source": str(self.folder), "destination": str(self.folder)}],
        }
        began = time.time()
        async with self.session.post(f"{self.scheduler.api}/workloads", json=body) as answer:
            if answer.status != 201:
                raise RuntimeError(await answer.text())
        seconds = await written(met) - began
        await self._ended(met.name)
        return seconds

    async def _ended(self, name: str) -> None:
        url = f"{self.scheduler.api}/workloads/vision/{name}"
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                async with self.session.get(url) as answer:
                    if (await answer.json())["status"]["phase"] == "succeeded":
                        return
                await asyncio.sleep(0.1)

    async def turns_of(self, load: str, runs: int) -> tuple[float, float]:
        """Medians by hand and by Carrel, in turns; the first turn only warms up."""
        await self.by_hand(load), await self.by_carrel(load)
        pairs = [(await self.by_hand(load), await self.by_carrel(load)) for _ in range(runs)]
        return median([hand for hand, _ in pairs]), median([ours for _, ours in pairs])


def start_all(shared: Mapping[str, str], workers: int) -> list["subprocess.Popen[bytes]"]:
    """Start the workers as a loop of a shell would."""
    return [
        subprocess.Popen(
            [sys.executable, "-c", WORKER], env={**os.environ, **shared, "RANK": str(rank)}
        )
        for rank in range(workers)
    ]


async def written(path: Path) -> float:
    """The time that stands in a file, once it is there."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            if path.exists():
                return float(path.read_text())
            await asyncio.sleep(0.01)


async def run(folder: Path, workers: int, runs: int) -> list[Figure]:
    accounts = {"ada": Account("ada", scopes=(USE, ADMIN), groups={"project-vision"})}
    async with (
        StandInHub(accounts) as hub,
        aiohttp.ClientSession(headers={"Authorization": "token ada"}) as session,
    ):
        state, where = folder / "state", folder / "met"
        state.mkdir(mode=0o700)
        where.mkdir()
        where.chmod(0o777)
        scheduler = SchedulerProcess(state, hub.url, "ada")
        await scheduler.start()
        try:
            await scheduler.ready(session)
            project = {"name": "vision", "quota": {"gpus": 4}}
            async with session.post(f"{scheduler.api}/projects", json=project) as answer:
                answer.raise_for_status()
            bench = Bench(scheduler, session, where, workers)
            hand, ours = await bench.turns_of("numpy", runs)
            bare_hand, bare_ours = await bench.turns_of("", runs)
        finally:
            await scheduler.stop()
    ratio = ours / hand
    return [
        Figure(f"{workers} workers that import NumPy, by hand", hand, "s", "-"),
        Figure("the same, submit to all met", ours, "s", "-"),
        Figure("ratio", ratio, "x", f"<= {GOAL:g}", ratio <= GOAL),
        Figure(f"{workers} workers that import nothing, by hand", bare_hand, "s", "-"),
        Figure("the same, submit to all met ", bare_ours, "s", "-"),
        Figure("ratio of these", bare_ours / bare_hand, "x", "-"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="carrel-gang-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        figures = asyncio.run(run(folder, options.workers, options.runs))
    finally:
        end_all_below(folder)
        shutil.rmtree(folder, ignore_errors=True)
    show("A gang of workers", figures, as_json=options.json)


if __name__ == "__main__":
    main()
