"""Spawn storm: how many workspaces a second the Hub brings up, against plain JupyterHub.

Fifty clients start the servers of 500 users over the Hub's API, each when its last one is ready
(the Hub has seen it answer and the proxy has its route). In the workspace's place runs a stub of
some 25 ms, because a real JupyterLab takes seconds of CPU and would hide what a Hub adds to it.

What is compared: both sides start one process of the same stub for each user, in the way each
would start JupyterLab. The peer's ``SimpleLocalProcessSpawner`` forks it from the Hub, all of them
under one account. Carrel's real spawner asks the real scheduler over REST, which decides, records
that in its ledger (SQLite, full sync) and has its local engine start the process under an account
and a view of the file system of the user's own, with limits, a log and a supervisor. A stub that
is shared instead of started would spare the peer nothing but its fork, and us the engine; a
stub without the scheduler would not be our product. Same machine, Python, proxy program, database
engine and load generator; the sides take turns, each time on new state. As root a third side has
what the peer has no counterpart of: each user's first server makes a network namespace with rules
of its own, as ``carrel up`` has it. Its rate is reported beside the others.

``python -m benchmarks.hub [--json] [--users 500] [--clients 50] [--rounds 3]``
"""

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import aiohttp
from rich.console import Console

from benchmarks.report import Figure, median, show
from benchmarks.stacks import LargeCarrelStack, Stack, expect
from benchmarks.stub_server import COMMAND

T = TypeVar("T")
GOAL = 0.95
OURS = 'c.JupyterHub.spawner_class = "benchmarks.stub_server.StubSpawner"\n'
PEERS = f"c.Spawner.cmd = {COMMAND!r}\nc.Spawner.args = []\n"


@dataclass(frozen=True, slots=True)
class Storm:
    """The result of a spawn storm.

    Attributes:
        rate: servers a second.
        seconds: of each start, from the request to ready.
        hub_mib: the Hub's memory after it.
        spent: processor time for one start in each part, in milliseconds.
    """

    rate: float
    seconds: list[float]
    hub_mib: float
    spent: dict[str, float]

    def quantile(self, percent: int) -> float:
        """The time that so many per cent of the starts did not exceed."""
        return statistics.quantiles(self.seconds, n=100, method="inclusive")[percent - 1]


async def start(session: aiohttp.ClientSession, user: str) -> float:
    """Start a server; seconds until it was ready. Raises ``RuntimeError``."""
    began = time.perf_counter()
    async with session.post(f"/hub/api/users/{user}/server", json={}) as answer:
        if answer.status == 202:
            await _until_ready(session, user)
        else:
            await expect(answer, 201)
    return time.perf_counter() - began


async def _until_ready(session: aiohttp.ClientSession, user: str) -> None:
    """The Hub answered before the server was ready: its progress stream tells when."""
    async with session.get(f"/hub/api/users/{user}/server/progress") as stream:
        async for line in stream.content:
            if b'"ready": true' in line:
                return
            if b'"failed": true' in line:
                raise RuntimeError(f"{user}: {line.decode()}")
    raise RuntimeError(f"{user}: the progress stream ended early")


async def stop(session: aiohttp.ClientSession, user: str) -> None:
    """Stop a server; returns when the Hub has no more of it."""
    async with session.delete(f"/hub/api/users/{user}/server") as answer:
        if answer.status == 204:
            return
        await expect(answer, 202)
    while True:
        async with session.get(f"/hub/api/users/{user}") as answer:
            if not (await answer.json())["servers"]:
                return
        await asyncio.sleep(0.2)


async def storm(stack: Stack, users: int, clients: int) -> Storm:
    """Run a spawn storm on new state."""
    async with stack, stack.session() as session:
        names = [f"user-{number:04}" for number in range(users)]
        await stack.add_users(session, names)
        await start(session, names[0])
        await stop(session, names[0])
        busy = cpu_seconds(stack)
        began = time.perf_counter()
        seconds = await for_all(start, session, names, clients)
        took = time.perf_counter() - began
        spent = {
            name: 1000 * (value - busy[name]) / users for name, value in cpu_seconds(stack).items()
        }
        hub_mib = stack.processes()["hub"].memory_info().rss / 1024**2
        await for_all(stop, session, names, clients)
    return Storm(users / took, seconds, hub_mib, spent)


async def for_all(
    action: Callable[[aiohttp.ClientSession, str], Awaitable[T]],
    session: aiohttp.ClientSession,
    names: Sequence[str],
    clients: int,
) -> list[T]:
    """Call ``action`` for each user, so many at a time."""
    queue = iter(names)

    async def client() -> list[T]:
        return [await action(session, name) for name in queue]

    return [
        one for found in await asyncio.gather(*(client() for _ in range(clients))) for one in found
    ]


def cpu_seconds(stack: Stack) -> dict[str, float]:
    """Processor time of each part so far, without what it started."""
    times = {name: process.cpu_times() for name, process in stack.processes().items()}
    return {name: one.user + one.system for name, one in times.items()}


class Peer(Stack):
    """Plain JupyterHub with the stub."""

    def __init__(self) -> None:
        super().__init__(extra=PEERS)


class Shared(LargeCarrelStack):
    """Carrel with the stub; all work shares the machine's network, as it does with the peer."""

    def __init__(self) -> None:
        super().__init__(extra=OURS)


class Isolated(Shared):
    """Carrel with the stub; each user has a network of its own."""

    name = "Carrel, a network for each user"
    isolated_networks = True


SIDES: tuple[type[Peer | Shared], ...] = (
    (Peer, Shared, Isolated) if os.geteuid() == 0 else (Peer, Shared)
)


async def measure(users: int, clients: int, rounds: int) -> list[Figure]:
    """Storms in turns; the side that begins changes each round."""
    storms: dict[str, list[Storm]] = {side.name: [] for side in SIDES}
    for number in range(rounds):
        for side in SIDES if number % 2 == 0 else reversed(SIDES):
            found = await storm(side(), users, clients)
            storms[side.name].append(found)
            Console().print(
                f"{side.name}: {found.rate:.1f}/s, p50 {found.quantile(50):.2f} s, "
                f"p99 {found.quantile(99):.2f} s, Hub {found.hub_mib:.0f} MiB, processor time of a "
                f"start: {', '.join(f'{name} {ms:.0f} ms' for name, ms in found.spent.items())}; "
                f"load {os.getloadavg()[0]:.1f}"
            )
    return figures(storms)


def figures(storms: Mapping[str, Sequence[Storm]]) -> list[Figure]:
    """The ratios of the medians, and what one start took."""
    rates = {name: median([one.rate for one in found]) for name, found in storms.items()}
    bare = rates[Peer.name]
    found = []
    for name, rate in list(rates.items())[1:]:
        goal = f">= {GOAL}" if name == Shared.name else "told only"
        found.append(
            Figure(
                f"{name}: spawns a second, as a ratio to plain JupyterHub",
                rate / bare,
                f"x ({rate:.1f}/s, bare {bare:.1f}/s)",
                goal,
                met=name != Shared.name or rate / bare >= GOAL,
            )
        )
    for percent in (50, 99):
        seconds = [
            median([one.quantile(percent) for one in storms[name]])
            for name in (Shared.name, Peer.name)
        ]
        name = f"POST to ready, p{percent}"
        found.append(
            Figure(name, seconds[0], f"s (bare {seconds[1]:.2f} s)", "told only", met=True)
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    found = asyncio.run(measure(given.users, given.clients, given.rounds))
    show("Spawn storm", found, as_json=given.json)


if __name__ == "__main__":
    main()
