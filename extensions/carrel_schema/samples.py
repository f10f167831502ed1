"""Samples: capacity and use of the cluster, its nodes and its projects over time.

One is taken every minute; means of five minutes are kept for two weeks, means of an hour for more
than a year. ``subject`` is one of ``cluster``, ``node/NAME``, ``node-group/NAME``,
``department/NAME`` or ``project/NAME``.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from carrel_schema.answers import Answer

Step = Literal[300, 3600]
STEPS: Final[tuple[Step, ...]] = (300, 3600)
"""Lengths of the spans that means are kept of, in seconds."""
IDLE_SECONDS: Final = 300.0
"""A GPU that has done nothing for so long counts as idle."""
Metric = Literal[
    "gpus",
    "gpus_ready",
    "gpus_allocated",
    "gpus_idle",
    "gpus_used",
    "gpus_pending",
    "quota_gpus",
    "running",
    "pending",
    "cpus",
    "cpus_allocated",
    "memory_gib",
    "memory_allocated_gib",
]
METRICS: Final[Mapping[Metric, str]] = {
    "gpus": "GPUs that there are",
    "gpus_ready": "GPUs of nodes that take work",
    "gpus_allocated": "GPUs allocated to running work",
    "gpus_idle": "allocated GPUs that have done nothing for five minutes",
    "gpus_used": "utilization of GPUs, summed up",
    "gpus_pending": "GPUs that pending work asks for",
    "quota_gpus": "GPUs that are guaranteed",
    "running": "running work",
    "pending": "pending work",
    "cpus": "cores that there are",
    "cpus_allocated": "cores allocated",
    "memory_gib": "memory that there is, in GiB",
    "memory_allocated_gib": "memory allocated, in GiB",
}


class Sample(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The metrics of one subject at one time, or their means over a span, in this order."""

    gpus: float = 0.0
    gpus_ready: float = 0.0
    gpus_allocated: float = 0.0
    gpus_idle: float = 0.0
    gpus_used: float = 0.0
    gpus_pending: float = 0.0
    quota_gpus: float = 0.0
    running: float = 0.0
    pending: float = 0.0
    cpus: float = 0.0
    cpus_allocated: float = 0.0
    memory_gib: float = 0.0
    memory_allocated_gib: float = 0.0


class SampleSeries(Answer, frozen=True, kw_only=True):
    """Metrics of a subject over time; ``times`` are the beginnings of the spans.

    Attributes:
        step_seconds: how long a span is.
        values: by metric, one for each time.
    """

    subject: str
    step_seconds: float = 0.0
    times: Sequence[float] = ()
    values: Mapping[str, Sequence[float]] = {}


def mean(samples: Sequence[Sample]) -> Sample:
    """Compute the mean of each metric; raises ``ValueError`` without samples."""
    if not samples:
        raise ValueError("there is no mean of no samples")
    names, count = Sample.__struct_fields__, len(samples)
    return Sample(
        **{name: round(sum(getattr(one, name) for one in samples) / count, 4) for name in names}
    )
