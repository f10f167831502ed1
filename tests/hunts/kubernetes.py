"""Hunt on real API servers in many random stories: kills at every write, storms, lost nodes.

    python tests/hunts/kubernetes.py --runs 500 [--side-by-side 3]

Each run has a seed, so a failure is told again by ``--first SEED --runs 1``. Schedulers are
processes that SIGKILL ends; the end says at which of their writes. Several API servers side by
side tell the runs sooner. Ends with a line that counts the failures and says how long settling
took; the exit status is 1 when there are any, or when it took longer than ``--settle`` seconds.
"""

import argparse
import asyncio
import logging
import os
import re
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec

from k8s.cluster import binaries
from k8s.cluster.records import Record
from k8s.fault_runs import Runs
from k8s.faults import LONG_SECONDS as SETTLE_SECONDS

LINE_BYTES: Final = 1 << 20
_NAMESPACED: Final = re.compile(r"/namespaces/[^/]+(?=/)")


class Outcome(msgspec.Struct):
    """The result of a run; ``wrong`` is empty where nothing was wrong."""

    seed: int
    wrong: str = ""
    settled: float = 0.0
    kills: tuple[str, ...] = ()
    processes: int = 0
    happened: tuple[str, ...] = ()
    logs: str = ""


async def tell(first: int, step: int, beyond: int) -> None:
    """Tell every ``step``-th story on an API server of our own; a line for each."""
    programs = binaries.control_plane(lambda line: print(line, file=sys.stderr))
    record = Record.begin()
    try:
        runs = Runs(programs, record)
        try:
            for seed in range(first, beyond, step):
                outcome = await _one(runs, seed)
                sys.stdout.buffer.write(msgspec.json.encode(outcome) + b"\n")
                sys.stdout.flush()
        finally:
            runs.close()
    finally:
        record.end()


async def _one(runs: Runs, seed: int) -> Outcome:
    try:
        told = await runs.tell(seed)
    except Exception:  # noqa: BLE001 - whatever goes wrong is what is hunted
        return Outcome(seed, traceback.format_exc(limit=-3))
    return Outcome(seed, "", told.settled, told.kills, told.processes, told.happened, told.logs)


async def hunt(first: int, count: int, side_by_side: int) -> list[Outcome]:
    """Tell all stories, and what is wrong as soon as it is known."""
    outcomes: list[Outcome] = []

    async def follow(offset: int) -> None:
        words = ("--tell", str(first + offset), str(side_by_side), str(first + count))
        teller = await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, *words), stdout=asyncio.subprocess.PIPE, limit=LINE_BYTES
        )
        assert teller.stdout is not None
        async for line in teller.stdout:
            outcome = msgspec.json.decode(line, type=Outcome)
            outcomes.append(outcome)
            if outcome.wrong:
                print(f"seed {outcome.seed}: {outcome.wrong}"[:20_000], flush=True)
            elif outcome.settled > SETTLE_SECONDS:
                late = f"seed {outcome.seed} took {outcome.settled:.1f} s: {outcome.happened}"
                print(f"{late}\n{outcome.logs}"[:20_000], flush=True)
            if len(outcomes) % 20 == 0:
                print(_sum(outcomes), flush=True)
        await teller.wait()

    await asyncio.gather(*(follow(offset) for offset in range(side_by_side)))
    return outcomes


def _sum(outcomes: Sequence[Outcome]) -> str:
    settled = sorted(one.settled for one in outcomes if not one.wrong) or [0.0]
    late = sum(1 for one in settled if one > SETTLE_SECONDS)
    return (
        f"{len(outcomes)} runs, {sum(1 for one in outcomes if one.wrong)} failed; settled within "
        f"{settled[-1]:.1f} s, half of them within {settled[len(settled) // 2]:.1f} s, {late} in "
        f"more than {SETTLE_SECONDS:g} s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )


def _deaths(outcomes: Sequence[Outcome]) -> str:
    """The kinds of writes at which schedulers were killed, and how often."""
    kills = Counter(
        _NAMESPACED.sub("", kill.partition("?")[0]) for one in outcomes for kill in one.kills
    )
    kinds: Counter[str] = Counter()
    for kill, times in kills.items():
        when, method, path = kill.split(" ")
        parts = path.strip("/").split("/")
        known = parts[2:] if parts[0] == "api" else parts[3:]
        kinds[f"{when} {method} {'/'.join(known[:1] + known[2:])}"] += times
    lines = [f"{times:5} {kind}" for kind, times in sorted(kinds.items())]
    processes = sum(one.processes for one in outcomes)
    return "\n".join(
        (f"{processes} processes; killed at a write {sum(kinds.values())} times:", *lines)
    )


def main() -> int:
    """Run, and print each failure with its seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--side-by-side", type=int, default=1)
    parser.add_argument("--settle", type=float, default=SETTLE_SECONDS)
    parser.add_argument("--tell", type=int, nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.tell:
        logging.disable(logging.WARNING)
        asyncio.run(tell(options.tell[0], options.tell[1], options.tell[2]))
        return 0
    outcomes = asyncio.run(hunt(options.first, options.runs, options.side_by_side))
    print(_deaths(outcomes))
    print(_sum(outcomes))
    fine = len(outcomes) == options.runs and not any(one.wrong for one in outcomes)
    return 0 if fine and max(one.settled for one in outcomes) <= options.settle else 1


if __name__ == "__main__":
    sys.exit(main())
