"""Kueue's own performance tests through our REST API and the durable ledger, run times simulated.

A generator file says which queues there are and what is submitted to them when. Here a queue is a
project (its nominal quota guaranteed, its borrowing limit on top), a unit of quota a core, and
workloads are submitted in batches by one client over loopback, at the generator's times or as soon
after them as the service answers. The service is the real one: SQLite with full sync, the
reconciler, the decision core; only processes are not started, see ``simulated_engine``. As in
Kueue's test there are no nodes to fit work onto: the machine is one node of all quota together.

Peer: Kueue's published wall times of the same files. The ideal is all work over all capacity, or
the last arrival's own end. All times are read from the ledger when all is done, after checking
that each workload was created, ran to its end, and ended once.

``python -m benchmarks.kueue --generator generator.yaml [--json]``
"""

import argparse
import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

import aiohttp

from benchmarks.kueue_generator import Generator
from benchmarks.kueue_load import submit_all, wait_for_the_end, with_projects
from benchmarks.kueue_results import Results, read_results
from benchmarks.report import Figure, show
from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub


class Peer(NamedTuple):
    """Kueue's published time for a file, and ours to reach."""

    seconds: float
    goal_seconds: float


# By numbers of workloads and queues.
PEER = {(15_000, 30): Peer(351, 70), (50_000, 1000): Peer(1179, 30)}


async def measure(generator: Generator, folder: Path) -> tuple[Results, dict[str, float]]:
    """Run all of it; returns what the ledger says and where the service's time went."""
    accounts = {"a": Account("ada", scopes=(USE, ADMIN))}
    timeout = aiohttp.ClientTimeout(total=600)
    async with (
        StandInHub(accounts) as hub,
        aiohttp.ClientSession(headers={"Authorization": "token a"}, timeout=timeout) as session,
    ):
        scheduler = SchedulerProcess(
            folder,
            hub.url,
            "a",
            module="benchmarks.simulated_service",
            more={"CARREL_SIMULATED_CPUS": str(generator.capacity)},
        )
        try:
            await scheduler.start()
            await scheduler.ready(session)
            await with_projects(session, scheduler.api, generator.queues)
            began = await submit_all(session, scheduler.api, generator.arrivals)
            await wait_for_the_end(session, scheduler.api)
        finally:
            await scheduler.stop()
    results = read_results(folder / "carrel.sqlite", began, len(generator.arrivals))
    return results, json.loads((folder / "decisions.json").read_text())


def figures(generator: Generator, found: Results, spent: dict[str, float]) -> list[Figure]:
    """The table."""
    count = len(generator.arrivals)
    ideal, peer = generator.ideal_seconds, PEER.get((count, len(generator.queues)))
    rows = [
        Figure(
            f"{count:,} workloads, from the first submission to the last end",
            found.seconds,
            "s",
            "-" if peer is None else f"<= {peer.goal_seconds:g}",
            peer is None or found.seconds <= peer.goal_seconds,
        ),
        Figure(
            "the same, as a ratio to the ideal", found.seconds / ideal, f"x ({ideal:.1f} s)", "-"
        ),
    ]
    if peer is not None:
        faster, unit = peer.seconds / found.seconds, f"x ({peer.seconds:g} s)"
        rows.append(Figure("Kueue's published time over ours", faster, unit, "-"))
    return [*rows, *_details(generator, found, spent)]


def _details(generator: Generator, found: Results, spent: dict[str, float]) -> list[Figure]:
    """The figures that explain the time."""
    deciding = spent["decide_seconds"] + spent["apply_seconds"]
    rest = (spent["cpu_seconds"] - deciding) / len(generator.arrivals)
    in_use = found.core_seconds / generator.capacity / found.seconds
    return [
        Figure("submitted and durable", found.submitted_seconds, "s", "-"),
        Figure("decisions", spent["decisions"], "", "-"),
        Figure("deciding, processor time", deciding, "s", "-"),
        Figure("all else, processor time per workload", rest * 1e6, "µs", "-"),
        Figure("held by workloads, of all there is", in_use * 100, "%", "-"),
        Figure("workloads that had to give way", found.evictions, "", "-"),
        *(
            Figure(f"from submission to its place, {name}, mean", seconds, "s", "-")
            for name, seconds in found.waits.items()
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generator", type=Path, required=True)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--keep", type=Path, help="leave the service's state folder there")
    arguments = parser.parse_args()
    generator = Generator(arguments.generator)
    folder = Path(tempfile.mkdtemp(prefix="carrel-kueue-", dir="/var/tmp"))
    try:
        found, spent = asyncio.run(measure(generator, folder))
        if arguments.keep:
            shutil.copytree(folder, arguments.keep)
    finally:
        shutil.rmtree(folder)
    title = f"Kueue's {arguments.generator.name}"
    show(title, figures(generator, found, spent), as_json=arguments.json)


if __name__ == "__main__":
    main()
