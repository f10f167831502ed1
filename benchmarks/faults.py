"""Faults of the machine under load: nothing lost, nothing twice, soon back once each is over.

The load and the verdict are those of ``kills``. Each fault lasts a few seconds, and most of them
meet a restart meanwhile: a full disk, no inotify watches, no memory for a restart, a clock that
jumps, a scheduler that stands still, supervisors of tasks that stand still.

``python -m benchmarks.faults [--json] [--rounds 5]``, as root: the disk is a mount of its own.
"""

import argparse
import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import aiohttp

from benchmarks.faulty_schedulers import SWITCHES
from benchmarks.forking import ForkServer
from benchmarks.kills import (
    BACK_WITHIN_SECONDS,
    Load,
    Verdict,
    all_done,
    judge,
    projects,
    shared_folder,
    standing_hub,
    workloads,
)
from benchmarks.report import Figure, show
from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.small_disk import SmallDisk, small_disk

DISK_MEGABYTES: Final = 96
LASTS_SECONDS: Final = 1.5
TIMEOUT_SECONDS: Final = 60.0
HOUR_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Scene:
    """The installation that faults are injected into."""

    scheduler: SchedulerProcess
    session: aiohttp.ClientSession
    load: Load
    disk: SmallDisk
    switches: Path

    async def restart(self) -> None:
        """Kill and start; whether it comes up is another question."""
        await self.scheduler.kill()
        await self.scheduler.start()

    async def back(self) -> float:
        """Seconds until a submission is accepted; a scheduler that has ended is started again."""
        clock = asyncio.get_running_loop().time
        began, known = clock(), len(self.load.acknowledged)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                try:
                    await self.scheduler.ready(self.session)
                    break
                except RuntimeError:
                    await self.scheduler.start()
            while len(self.load.acknowledged) == known:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.01)
        return clock() - began


async def full_disk(scene: Scene) -> None:
    """Fill the disk, also for a scheduler that starts."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await _is_ready(scene):
            scene.disk.fill()
    await asyncio.sleep(LASTS_SECONDS)
    await scene.restart()
    await asyncio.sleep(LASTS_SECONDS)
    scene.disk.empty()


async def _is_ready(scene: Scene) -> bool:
    async with scene.session.get(f"{scene.scheduler.url}/ready") as answer:
        return answer.status < 500


async def no_watches(scene: Scene) -> None:
    """The kernel watches no more folders."""
    switch = scene.switches / "no-watches"
    switch.touch()
    await asyncio.sleep(LASTS_SECONDS)
    await scene.restart()
    await scene.back()
    await asyncio.sleep(LASTS_SECONDS)
    switch.unlink()


async def no_memory(scene: Scene) -> None:
    """A scheduler that starts gets no memory."""
    switch = scene.switches / "no-memory"
    switch.touch()
    await scene.restart()
    await asyncio.sleep(LASTS_SECONDS)
    switch.unlink()
    await scene.restart()


async def clock_jumps(scene: Scene) -> None:
    """The clock is an hour ahead, then an hour behind, also when the scheduler starts."""
    switch = scene.switches / "clock"
    for offset in (HOUR_SECONDS, -HOUR_SECONDS):
        switch.write_text(str(offset))
        await asyncio.sleep(LASTS_SECONDS)
        await scene.restart()
        await scene.back()
    switch.unlink()


async def scheduler_stands_still(scene: Scene) -> None:
    """Stop the scheduler and let it go on."""
    os.kill(scene.scheduler.pid, signal.SIGSTOP)
    await asyncio.sleep(2 * LASTS_SECONDS)
    os.kill(scene.scheduler.pid, signal.SIGCONT)


async def supervisors_stand_still(scene: Scene) -> None:
    """Stop the supervisors of tasks and their fork server; kill the scheduler meanwhile."""
    stopped = [*_supervisors(scene.disk.folder), *_children(scene.scheduler.pid)]
    _send(stopped, signal.SIGSTOP)
    await asyncio.sleep(LASTS_SECONDS)
    await scene.restart()
    await asyncio.sleep(LASTS_SECONDS)
    _send(stopped, signal.SIGCONT)


def _supervisors(folder: Path) -> Sequence[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
        except OSError:
            continue  # it has ended
    return found


def _children(pid: int) -> Sequence[int]:
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for text in lists for child in text.read_text().split()]


def _send(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


FAULTS: Final[dict[str, Callable[[Scene], Awaitable[None]]]] = {
    "full disk": full_disk,
    "no inotify watches": no_watches,
    "no memory at a restart": no_memory,
    "clock jumps": clock_jumps,
    "scheduler stopped": scheduler_stands_still,
    "supervisors stopped": supervisors_stand_still,
}


async def run(
    folder: Path, rounds: int, fork_server: ForkServer
) -> tuple[Verdict, dict[str, float]]:
    """Inject every fault so many times; the verdict, and the longest recovery after each."""
    switches = folder / "switches"
    switches.mkdir()
    with shared_folder() as shared, small_disk(folder / "disk", DISK_MEGABYTES) as disk:
        async with (
            standing_hub() as hub,
            aiohttp.ClientSession(headers={"Authorization": "token t-admin"}) as session,
        ):
            scheduler = SchedulerProcess(
                disk.folder,
                hub.url,
                "t-service",
                fork_server=fork_server,
                more={SWITCHES: str(switches)},
            )
            scheduler.log = folder / "scheduler.log"
            load = Load(scheduler, shared, seed=11)
            try:
                scene = Scene(scheduler, session, load, disk, switches)
                worst = await _meet(scene, rounds)
                await all_done(scheduler, session, len(load.acknowledged))
                stored = await workloads(scheduler, session)
            finally:
                disk.empty()
                await scheduler.stop()
        back = list(worst.values())
        return judge(load, back, stored, (shared / "log").read_text().split("\n")[:-1]), worst


async def _meet(scene: Scene, rounds: int) -> dict[str, float]:
    await scene.scheduler.start()
    await scene.scheduler.ready(scene.session)
    await projects(scene.scheduler, scene.session)
    submitters = [asyncio.create_task(scene.load.run(one)) for one in ("vision", "speech")]
    worst = dict.fromkeys(FAULTS, 0.0)
    for _ in range(rounds):
        for name, fault in FAULTS.items():
            await fault(scene)
            worst[name] = max(worst[name], await scene.back())
    scene.load.stopping = True
    await asyncio.gather(*submitters)
    return worst


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="carrel-faults-") as folder,
        ForkServer("benchmarks.faulty_schedulers") as fork_server,
    ):
        verdict, worst = asyncio.run(run(Path(folder), arguments.rounds, fork_server))
    wrong = len(verdict.lost) + len(verdict.unfinished) + len(verdict.twice)
    figures = [
        Figure(
            "jobs lost, unfinished or run twice", wrong, f"({verdict.jobs} jobs)", "0", not wrong
        )
    ]
    figures += [
        Figure(f"back after: {name}", seconds, "s", "<= 5", seconds <= BACK_WITHIN_SECONDS)
        for name, seconds in worst.items()
    ]
    show("Faults under load", figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
