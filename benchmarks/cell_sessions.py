"""Notebook sessions made from a trace of jobs, and how long each way of giving GPUs holds them.

The rule, with a seed:

1. A *cell* is a job of one GPU that took at most ``CELL_SECONDS``; its duration is the trace's.
   Longer jobs are what ``%%train`` is for, and jobs of several GPUs are no cells.
2. Cells in the order of their submission, a number of them drawn from a geometric distribution
   with the mean ``CELLS``, are a *session* of one person, which begins when its first cell was
   submitted in the trace.
3. After each cell its author reads, thinks and types for a time drawn from a log-normal
   distribution with the median ``THINK_SECONDS`` and the spread ``THINK_SPREAD``; then the next one
   is run.

With a GPU *bound to the workspace*, the workspace holds it from its first cell until the idle limit
strikes after its last one. With ``%%gpu`` each cell holds a GPU from its start in a companion until
``keep`` seconds after its end, and gives it back in ``RELEASE_SECONDS``. A cell waits for the start
of a companion, or asks the one that was kept.
"""

import csv
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

CELL_SECONDS: Final = 900.0
CELLS: Final = 12.0
THINK_SECONDS: Final = 120.0
THINK_SPREAD: Final = 1.0
RELEASE_SECONDS: Final = 1.0
NAMES: Final = {
    "gpus": ("num_gpu", "num_gpus", "gpu_num"),
    "submitted": ("submit_time", "timestamp"),
    "duration": ("duration",),
}


@dataclass(frozen=True, slots=True)
class Job:
    """A job of the trace, in seconds."""

    submitted: float
    duration: float
    gpus: float


@dataclass(frozen=True, slots=True)
class Session:
    """Seconds of its cells, and of the pauses after each but the last."""

    begin: float
    cells: Sequence[float]
    pauses: Sequence[float]

    @property
    def seconds(self) -> float:
        """Seconds from its first cell to the end of its last."""
        return math.fsum(self.cells) + math.fsum(self.pauses)


@dataclass(frozen=True, slots=True)
class Held:
    """The cost of one way of giving GPUs.

    Attributes:
        gpu_seconds: for which GPUs were held.
        waits: what each cell waited beyond its own time while a GPU was free.
        most: GPUs that were held at the same time, at most.
    """

    gpu_seconds: float
    waits: Sequence[float]
    most: int


def read_jobs(path: Path) -> list[Job]:
    """Jobs by submission. Raises ``ValueError`` naming the column that a trace lacks.

    Args:
        path: CSV with ``num_gpu``, ``submit_time`` and ``duration`` (seconds; a time may be ISO).
            The names of the Philly trace are understood, too.
    """
    with path.open(newline="") as lines:
        rows = csv.DictReader(lines)
        columns = _columns(rows.fieldnames or ())
        jobs = [_job(row, columns) for row in rows]
    return sorted((one for one in jobs if one), key=lambda one: one.submitted)


def _columns(present: Sequence[str]) -> Mapping[str, str]:
    found = {}
    for meaning, names in NAMES.items():
        found[meaning] = next((name for name in names if name in present), "")
        if not found[meaning]:
            raise ValueError(f"the trace has no column {' or '.join(names)}: it has {present}")
    return found


def _job(row: Mapping[str, str], columns: Mapping[str, str]) -> Job | None:
    """A row as a job; nothing for one that never ran."""
    duration, gpus = row[columns["duration"]], row[columns["gpus"]]
    if not duration or not gpus or float(duration) <= 0:
        return None
    return Job(_seconds(row[columns["submitted"]]), float(duration), float(gpus))


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()


def sessions(jobs: Sequence[Job], seed: int, *, think: float = THINK_SECONDS) -> list[Session]:
    """The sessions of a trace by the rule above."""
    draw = random.Random(seed)
    cells = [one for one in jobs if one.gpus == 1 and one.duration <= CELL_SECONDS]
    return list(_sessions(cells, draw, math.log(think)))


def _sessions(cells: Sequence[Job], draw: random.Random, median: float) -> Iterator[Session]:
    at = 0
    while at < len(cells):
        count = 1 + int(math.log(1 - draw.random()) / math.log(1 - 1 / CELLS))
        taken = cells[at : at + count]
        pauses = [draw.lognormvariate(median, THINK_SPREAD) for _ in taken[1:]]
        yield Session(taken[0].submitted, [one.duration for one in taken], pauses)
        at += count


def bound(sessions: Sequence[Session], idle: float) -> Held:
    """A GPU for each workspace, from its first cell until ``idle`` seconds after its last."""
    spans = [(one.begin, one.begin + one.seconds + idle) for one in sessions]
    waits = [0.0 for one in sessions for _ in one.cells]
    return Held(math.fsum(end - begin for begin, end in spans), waits, most_at_once(spans))


def by_cells(
    sessions: Sequence[Session], cold: Callable[[], float], warm: Callable[[], float], keep: float
) -> Held:
    """A GPU for each cell.

    Args:
        sessions: whose cells run.
        cold: the start of a companion, in seconds, drawn anew for each.
        warm: what a companion that was kept adds.
        keep: seconds for which the GPU is kept after a cell.
    """
    spans: list[tuple[float, float]] = []
    waits: list[float] = []
    for one in sessions:
        spans += _spans(one, cold, warm, keep, waits)
    return Held(math.fsum(end - begin for begin, end in spans), waits, most_at_once(spans))


def _spans(
    session: Session, cold: Callable[[], float], warm: Callable[[], float], keep: float,
    waits: list[float],
) -> Iterator[tuple[float, float]]:  # fmt: skip
    """The spans in which a session holds a GPU; waits of its cells are added to ``waits``."""
    now, held = session.begin, None
    for cell, pause in zip(session.cells, (*session.pauses, math.inf), strict=True):
        wait = cold() if held is None else warm()
        waits.append(wait)
        held = now if held is None else held
        now += wait + cell
        if pause > keep:
            yield held, now + keep + RELEASE_SECONDS
            held = None
        now += pause


def most_at_once(spans: Sequence[tuple[float, float]]) -> int:
    """The largest number of spans that overlap."""
    now = most = 0
    for _, change in sorted([(end, -1) for _, end in spans] + [(begin, 1) for begin, _ in spans]):
        now += change
        most = max(most, now)
    return most
