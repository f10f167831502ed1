"""SIGKILLs of the scheduler under load: nothing lost, nothing twice, soon back.

Every task takes an exclusive lock on each of its devices and appends a line when it starts and when
it is done, so a device given twice or an attempt run twice shows up at once. Submissions carry an
idempotency key and are retried until answered, as the client does.

``python -m benchmarks.kills [--json] [--kills 200]``
"""

import argparse
import asyncio
import collections
import contextlib
import logging
import random
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.forking import ForkServer
from benchmarks.report import Figure, show
from benchmarks.scheduler_process import SchedulerProcess
from benchmarks.standin_hub import ADMIN, USE, Account, StandInHub

log = logging.getLogger(__name__)
BACK_WITHIN_SECONDS = 5.0
JOB = """
import fcntl, os, signal, sys, time
folder, seconds = sys.argv[1], float(sys.argv[2])
uid, attempt = os.environ["CARREL_WORKLOAD_UID"], os.environ["CARREL_ATTEMPT"]
def say(word):
    line = f"{word} {uid} {attempt}\\n".encode()
    log = os.open(f"{folder}/log", os.O_WRONLY | os.O_APPEND)
    os.write(log, line)
    os.close(log)
held = []
for device in filter(None, os.environ["CARREL_DEVICES"].split(",")):
    held.append(os.open(f"{folder}/device-{device}", os.O_RDWR))
    try:
        fcntl.flock(held[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"twice-{device}")
say("began")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
time.sleep(seconds)
say("done")
"""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a run of kills; every list should be empty.

    Attributes:
        jobs: how many submissions were acknowledged.
        back_seconds: from each start to the first answer.
        lost: acknowledged, but not in the ledger or without having run to the end.
        unfinished: phases other than succeeded.
        twice: attempts that began more than once, devices that two tasks held at once.
    """

    jobs: int
    back_seconds: list[float]
    lost: list[str]
    unfinished: list[str]
    twice: list[str]


@contextlib.contextmanager
def shared_folder() -> Iterator[Path]:
    """A folder that every account may write to."""
    folder = Path(tempfile.mkdtemp(prefix="carrel-kill-", dir="/var/tmp"))
    folder.chmod(0o777)
    for name in ("log", *(f"device-{index}" for index in range(4))):
        (folder / name).touch()
        (folder / name).chmod(0o666)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextlib.asynccontextmanager
async def standing_hub() -> AsyncIterator[StandInHub]:
    """Two researchers, an admin and the service."""
    accounts = {
        "t-vision": Account("ada", groups={"project-vision"}),
        "t-speech": Account("grace", groups={"project-speech"}),
        "t-admin": Account("admin", scopes=(USE, ADMIN)),
        "t-service": Account("carrel"),
    }
    async with StandInHub(accounts) as standing:
        yield standing


class Load:
    """Submits jobs of both projects until told to stop; remembers what was acknowledged."""

    def __init__(self, scheduler: SchedulerProcess, shared: Path, seed: int) -> None:
        self.scheduler = scheduler
        self.shared = shared
        self.random = random.Random(seed)
        self.acknowledged: dict[str, str] = {}
        self.stopping = False

    async def run(self, project: str) -> None:
        """Submit until told to stop."""
        headers = {"Authorization": f"token t-{project}"}
        async with aiohttp.ClientSession(headers=headers) as session:
            number = 0
            while not self.stopping:
                number += 1
                await self._submit(session, project, f"{project}-{number}")
                await asyncio.sleep(self.random.uniform(0.02, 0.3))

    async def _submit(self, session: aiohttp.ClientSession, project: str, name: str) -> None:
        body = {
            "name": name,
            "project": project,
            "command": [
                "python3",
                "job.py",
                str(self.shared),
                f"{self.random.uniform(0.05, 0.6):.2f}",
            ],
            "files": {"job.py": JOB},
            "gpus": self.random.choice([1, 1, 1, 2]),
            "cpu_millicores": 10,
            "memory_bytes": 1 << 28,
            "grace_seconds": 1,
            "volumes": [{"source": str(self.shared), "destination": str(self.shared)}],
        }
        while True:
            try:
                async with session.post(
                    f"{self.scheduler.api}/workloads",
                    json=body,
                    headers={"Idempotency-Key": name},
                ) as answer:
                    if answer.status != 503:
                        assert answer.status == 201, await answer.text()
                        self.acknowledged[(await answer.json())["uid"]] = name
                        return
            except aiohttp.ClientError as error:
                log.debug("sent again: %s", error)
            await asyncio.sleep(0.05)


async def projects(scheduler: SchedulerProcess, session: aiohttp.ClientSession) -> None:
    for name in ("vision", "speech"):
        body = {"name": name, "quota": {"gpus": 2}}
        async with session.post(f"{scheduler.api}/projects", json=body) as answer:
            assert answer.status == 201, await answer.text()


async def workloads(
    scheduler: SchedulerProcess, session: aiohttp.ClientSession
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        query = {"limit": "500", **({"after": after} if after else {})}
        async with session.get(f"{scheduler.api}/workloads", params=query) as answer:
            page = await answer.json()
        found += page["items"]
        after = page["next"]
        if not after:
            return found


async def run(state_dir: Path, kills: int, fork_server: ForkServer | None = None) -> Verdict:
    """Kill so many times, let the queue drain, and look at what is left.

    ``fork_server``: where schedulers come from; else each is started as people start it.
    """
    with shared_folder() as shared:
        async with (
            standing_hub() as hub,
            aiohttp.ClientSession(headers={"Authorization": "token t-admin"}) as session,
        ):
            scheduler = SchedulerProcess(state_dir, hub.url, "t-service", fork_server=fork_server)
            try:
                load, back = await _killing(scheduler, session, shared, kills)
                await all_done(scheduler, session, len(load.acknowledged))
                stored = await workloads(scheduler, session)
            finally:
                await scheduler.stop()
        return judge(load, back, stored, (shared / "log").read_text().split("\n")[:-1])


async def _killing(
    scheduler: SchedulerProcess, session: aiohttp.ClientSession, shared: Path, kills: int
) -> tuple[Load, list[float]]:
    """Kill again and again under load; what was acknowledged, and seconds until it was back."""
    dice = random.Random(7)
    await scheduler.start()
    await scheduler.ready(session)
    await projects(scheduler, session)
    load = Load(scheduler, shared, seed=11)
    submitters = [asyncio.create_task(load.run(project)) for project in ("vision", "speech")]
    back: list[float] = []
    for _ in range(kills):
        await asyncio.sleep(dice.uniform(0.0, 0.8))
        await scheduler.kill()
        await scheduler.start()
        back.append(await scheduler.ready(session))
    load.stopping = True
    await asyncio.gather(*submitters)
    return load, back


def judge(load: Load, back: list[float], stored: list[dict[str, Any]], lines: list[str]) -> Verdict:
    """The verdict by the ledger and the lines of the jobs."""
    began = collections.Counter(line for line in lines if line.startswith("began"))
    done = {line.split()[1] for line in lines if line.startswith("done")}
    kept = {one["uid"] for one in stored}
    return Verdict(
        jobs=len(load.acknowledged),
        back_seconds=back,
        lost=sorted(set(load.acknowledged) - (kept & done)),
        unfinished=[one["name"] for one in stored if one["status"]["phase"] != "succeeded"],
        twice=[line for line, count in began.items() if count > 1]
        + [line for line in lines if line.startswith("twice")],
    )


async def all_done(scheduler: SchedulerProcess, session: aiohttp.ClientSession, jobs: int) -> None:
    """Wait until the queue has drained; the bound grows with the load."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + 120.0 + jobs * 2.0
    while clock() < deadline:
        open_phases = "phase=pending&phase=starting&phase=running&phase=preempting&phase=stopping"
        async with session.get(f"{scheduler.api}/workloads?{open_phases}&limit=1") as answer:
            if not (await answer.json())["items"]:
                return
        await asyncio.sleep(0.5)
    raise AssertionError("the queue did not drain")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kills", type=int, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="carrel-kills-") as folder:
        verdict = asyncio.run(run(Path(folder), arguments.kills))
    wrong = len(verdict.lost) + len(verdict.unfinished) + len(verdict.twice)
    worst = max(verdict.back_seconds)
    figures = [
        Figure("kills survived", arguments.kills, f"({verdict.jobs} jobs)", "all", wrong == 0),
        Figure("jobs lost, unfinished or run twice", wrong, "", "0", wrong == 0),
        Figure(
            "back after a kill, worst, as a ratio to 5 s",
            worst / BACK_WITHIN_SECONDS,
            f"x ({worst:.2f} s)",
            "<= 1",
            worst <= BACK_WITHIN_SECONDS,
        ),
    ]
    show("Kills under load", figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
