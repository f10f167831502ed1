"""A sweep of many trivial trials: the scheduler's own time, against Optuna alone.

500 trials, 8 at once, TPE on one parameter. What a trial computes takes no time, so what is
measured is everything else: asking for a configuration, running Python, taking its value durably,
noticing its end.

* *ours*: an experiment on a real scheduler service on loopback, SQLite with full sync, as it comes:
  the first trials are workloads with a process each, and as they are short, workers run the rest;
  these can be preempted, and a trial that crashes takes nothing along.
* *ours, fresh*: the same with ``trial_process: fresh``: each trial a workload with a supervisor, a
  log, limits and a record of its own.
* *Optuna, a process a trial*: eight slots; each trial is a process that opens the shared study
  (Optuna's journal in a file, which it syncs too) and runs one trial of it. What a sweep by Optuna
  in preemptible jobs is, without any scheduler; the goal of *fresh* is measured against this.
* *Optuna, a driver*: one process asks and tells; a trial is the smallest Python process there is,
  which knows nothing of Optuna. The least that a process a trial can cost.
* *Optuna, workers*: eight processes that live for the whole sweep and share the study. No trial can
  be preempted or crash without taking its worker along. The goal of *ours* is against this.

``python -m benchmarks.sweep [--json] [--trials 500] [--parallelism 8] [--rounds 1]``
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from benchmarks.report import Figure, median, show
from benchmarks.running_scheduler import ADA, running_scheduler
from carrel import AsyncClient

FRESH_GOAL = 1.3
GOAL = 2.0
TIMEOUT_SECONDS = 3600.0
SPACE = {"x": {"type": "float", "low": 0.0, "high": 1.0}}
OURS = "import carrel\ntrial = carrel.trial()\ntrial.result((trial['x'] - 0.3) ** 2)\n"
OPENS = """
import sys, optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
optuna.logging.set_verbosity(optuna.logging.ERROR)
storage = JournalStorage(JournalFileBackend(sys.argv[1]))
study = optuna.load_study(study_name="sweep", storage=storage)
study.optimize(lambda trial: (trial.suggest_float("x", 0.0, 1.0) - 0.3) ** 2, n_trials={trials})
"""
BARE = "import sys; print((float(sys.argv[1]) - 0.3) ** 2)"


async def ours(folder: Path, trials: int, parallelism: int, process_of_ours: str = "auto") -> float:
    """Seconds from submitting the experiment to its end."""
    async with (
        running_scheduler(folder, folder=folder, gpus=parallelism) as (scheduler, _),
        AsyncClient(scheduler.url, ADA) as client,
    ):
        await client.create_project({"name": "vision", "quota": {"gpus": parallelism}})
        return await _experiment(client, trials, parallelism, process_of_ours)


async def ours_fresh(folder: Path, trials: int, parallelism: int) -> float:
    """The same with a process for each trial."""
    return await ours(folder, trials, parallelism, "fresh")


async def _experiment(
    client: AsyncClient, trials: int, parallelism: int, process_of_ours: str
) -> float:
    body = {
        "name": "sweep",
        "project": "vision",
        "kind": "experiment",
        "command": ["python", "trial.py"],
        "files": {"trial.py": OURS},
        "gpus": 1,
        "memory_bytes": 1 << 28,
        "experiment": {
            "parameters": SPACE,
            "completions": trials,
            "parallelism": parallelism,
            "seed": 1,
            "trial_process": process_of_ours,
        },
    }
    began = time.perf_counter()
    await client.create_workload(body)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for event in client.events("vision", "sweep"):
            status = event.workload.status
            if status.phase in ("succeeded", "failed"):
                counts = status.experiment
                if counts is None or counts.completed != trials:
                    raise RuntimeError(f"the experiment ended otherwise: {status}")
                return time.perf_counter() - began
    raise RuntimeError("the stream of events ended")


def _study(folder: Path) -> tuple[optuna.Study, Path]:
    folder.mkdir()
    log = folder / "study.log"
    storage = JournalStorage(JournalFileBackend(str(log)))
    sampler = optuna.samplers.TPESampler(seed=1)
    return optuna.create_study(study_name="sweep", storage=storage, sampler=sampler), log


async def _python(*words: str) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", *words, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    if process.returncode:
        raise RuntimeError(f"a trial ended with {process.returncode}")
    return said


async def _slots(parallelism: int, trials: int, one: Callable[[], Awaitable[None]]) -> float:
    """Seconds for so many trials in so many slots."""
    left = iter(range(trials))

    async def slot() -> None:
        for _ in left:
            await one()

    began = time.perf_counter()
    await asyncio.gather(*(slot() for _ in range(parallelism)))
    return time.perf_counter() - began


async def process_a_trial(folder: Path, trials: int, parallelism: int) -> float:
    """Optuna alone: each trial opens the shared study."""
    study, log = _study(folder)
    script = OPENS.format(trials=1)

    async def one() -> None:
        await _python(script, str(log))

    seconds = await _slots(parallelism, trials, one)
    _check(study, trials)
    return seconds


async def driver(folder: Path, trials: int, parallelism: int) -> float:
    """Optuna alone: one process asks and tells."""
    study, _ = _study(folder)

    async def one() -> None:
        trial = study.ask()
        value = await _python(BARE, str(trial.suggest_float("x", 0.0, 1.0)))
        study.tell(trial, float(value))

    seconds = await _slots(parallelism, trials, one)
    _check(study, trials)
    return seconds


async def workers(folder: Path, trials: int, parallelism: int) -> float:
    """Optuna alone: processes that live for the whole sweep."""
    study, log = _study(folder)
    share, more = divmod(trials, parallelism)
    scripts = [OPENS.format(trials=share + (slot < more)) for slot in range(parallelism)]
    began = time.perf_counter()
    await asyncio.gather(*(_python(script, str(log)) for script in scripts))
    seconds = time.perf_counter() - began
    _check(study, trials)
    return seconds


def _check(study: optuna.Study, trials: int) -> None:
    done = [one for one in study.trials if one.state.name == "COMPLETE"]
    if len(done) != trials:
        raise RuntimeError(f"{len(done)} of {trials} trials were completed")


async def measure(trials: int, parallelism: int, rounds: int) -> list[Figure]:
    folder = Path(tempfile.mkdtemp(prefix="carrel-sweep-", dir="/var/tmp"))
    folder.chmod(0o755)
    sides = (ours, ours_fresh, process_a_trial, driver, workers)
    seconds: dict[str, list[float]] = {side.__name__: [] for side in sides}
    try:
        for number in range(rounds):
            for side in sides:
                load = os.getloadavg()[0]
                took = await side(folder / f"{side.__name__}-{number}", trials, parallelism)
                seconds[side.__name__].append(took)
                print(f"{side.__name__}: {took:.1f} s (load {load:.1f})", flush=True)
    finally:
        shutil.rmtree(folder)
    medians = {name: median(found) for name, found in seconds.items()}
    return [
        _against(medians, "ours", "workers", GOAL),
        _against(medians, "ours_fresh", "process_a_trial", FRESH_GOAL),
        _against(medians, "ours_fresh", "driver", None),
    ]


def _against(took: dict[str, float], side: str, peer: str, most: float | None) -> Figure:
    ratio = took[side] / took[peer]
    name = side.replace("ours_fresh", "sweep, a process a trial,").replace("ours", "sweep")
    unit = f"x ({took[side]:.1f} s, Optuna {took[peer]:.1f} s)"
    goal = "-" if most is None else f"<= {most}"
    words = peer.replace("_", " ")
    met = most is None or ratio <= most
    return Figure(f"{name} against Optuna alone, {words}", ratio, unit, goal, met)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--parallelism", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    figures = asyncio.run(measure(options.trials, options.parallelism, options.rounds))
    title = f"{options.trials} trivial trials, {options.parallelism} at once"
    show(title, figures, as_json=options.json)


if __name__ == "__main__":
    main()
