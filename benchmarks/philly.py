"""The Philly trace: jobs of virtual clusters with their GPUs, arrivals and durations."""

import csv
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from carrel_scheduler.core.resources import MILLI


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job: when it came (seconds since the first), how long it ran, on how many GPUs."""

    uid: str
    cluster: str
    arrival: float
    duration: float
    gpus: int


def read_jobs(path: Path) -> list[TraceJob]:
    """Read the jobs of a trace in the order of arrival.

    Args:
        path: CSV with the columns ``timestamp`` (ISO), ``duration`` (seconds), ``num_gpus`` and
            ``cluster``.
    """
    with path.open(newline="") as lines:
        rows = [(datetime.fromisoformat(row["timestamp"]), row) for row in csv.DictReader(lines)]
    rows.sort(key=lambda pair: pair[0])
    begin = rows[0][0]
    return [
        TraceJob(
            uid=f"job-{number:06}",
            cluster=row["cluster"],
            arrival=(at - begin).total_seconds(),
            duration=float(row["duration"]),
            gpus=int(row["num_gpus"]),
        )
        for number, (at, row) in enumerate(rows)
    ]


def quotas(jobs: Sequence[TraceJob], gpus: int) -> dict[str, int]:
    """GPU thousandths of each virtual cluster, in proportion to its GPU-hours; in all ``gpus``."""
    hours: Counter[str] = Counter()
    for job in jobs:
        hours[job.cluster] += round(job.gpus * job.duration)
    total, whole = sum(hours.values()), gpus * MILLI
    parts = {name: whole * amount // total for name, amount in sorted(hours.items())}
    rest = whole - sum(parts.values())
    for name in sorted(parts, key=lambda name: -(whole * hours[name] % total))[:rest]:
        parts[name] += 1
    return parts
