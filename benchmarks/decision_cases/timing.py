"""Times of one kind of decision: wall clock, and the processor's time beside it.

On a machine that other work shares, the processor's time is what the decision itself takes. The
collector is frozen while one measures, as the service does after its start.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MILLISECONDS = 1000


@dataclass(slots=True)
class Times:
    """Repeated runs of the same work, in milliseconds."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @contextmanager
    def one(self) -> Iterator[None]:
        """Time what is done inside."""
        wall, cpu = time.perf_counter(), time.thread_time()
        yield
        self.cpu.append((time.thread_time() - cpu) * MILLISECONDS)
        self.wall.append((time.perf_counter() - wall) * MILLISECONDS)


def percentile(values: list[float], part: float) -> float:
    """The smallest value that at least ``part`` of all do not exceed."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(part * len(ranked)))]


def repeat(
    prepare: Callable[[], object], work: Callable[[], object], times: int, warm_up: int = 1
) -> Times:
    """Time ``work``, each time after ``prepare``; the first runs are not counted."""
    measured = Times()
    gc.collect()
    gc.freeze()
    for number in range(times + warm_up):
        prepare()
        if number < warm_up:
            work()
            continue
        with measured.one():
            work()
    gc.unfreeze()
    return measured
