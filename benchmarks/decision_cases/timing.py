"""Times of one kind of decision: wall clock, and the processor's time beside it.

A decision is one thread's work, so on a machine that other work shares the processor's time is what
it takes, and what it is judged by; on a quiet machine both are the same. While one measures, the
collector looks as rarely as in the service.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmarks.report import Figure, median
from carrel_scheduler.collecting import collect_rarely
from carrel_scheduler.workloads.reconcile.deciding import collector_paused

MILLISECONDS = 1000


@dataclass(slots=True)
class Times:
    """Repeated runs of the same work, in milliseconds."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Time what is done inside, where the collector rests as in a pass of the service."""
        wall, cpu = time.perf_counter(), time.thread_time()
        with collector_paused():
            yield
        self.cpu.append((time.thread_time() - cpu) * MILLISECONDS)
        self.wall.append((time.perf_counter() - wall) * MILLISECONDS)


def least(runs: Sequence[Times]) -> Times:
    """The least times of each piece of the same work in several runs of it."""
    return Times(
        wall=[min(one) for one in zip(*(run.wall for run in runs), strict=True)],
        cpu=[min(one) for one in zip(*(run.cpu for run in runs), strict=True)],
    )


def percentile(values: list[float], part: float) -> float:
    """The smallest value that at least ``part`` of all do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(part * len(ranked)))]


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Have the collector look as the service does after its start."""
    usual = gc.get_threshold()
    gc.collect()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


@contextmanager
def collector_timed() -> Iterator[Times]:
    """The times of the collections inside, in milliseconds of the thread's processor time."""
    found, began = Times(), [0.0, 0.0]

    def note(phase: str, _info: dict[str, int]) -> None:
        now = time.perf_counter(), time.thread_time()
        if phase == "start":
            began[:] = now
            return
        found.wall.append((now[0] - began[0]) * MILLISECONDS)
        found.cpu.append((now[1] - began[1]) * MILLISECONDS)

    gc.callbacks.append(note)
    try:
        yield found
    finally:
        gc.callbacks.remove(note)


def repeat(
    prepare: Callable[[], object], work: Callable[[], object], times: int, warm_up: int = 1
) -> Times:
    """Time ``work``, each time after ``prepare``; the first runs are not counted."""
    measured = Times()
    with collecting_rarely():
        for number in range(times + warm_up):
            prepare()
            if number < warm_up:
                work()
                continue
            with measured.one():
                work()
    return measured


def figures(label: str, measured: Times, goal: float | None) -> list[Figure]:
    """Medians of both clocks, the processor's against the goal, and the slowest run."""
    busy = median(measured.cpu)
    wanted = "-" if goal is None else f"<= {goal:g}"
    return [
        Figure(f"{label}: processor time", busy, "ms", wanted, goal is None or busy <= goal),
        Figure(f"{label}: wall clock", median(measured.wall), "ms", "-"),
        Figure(f"{label}: slowest", percentile(measured.wall, 1.0), "ms", "-"),
    ]
