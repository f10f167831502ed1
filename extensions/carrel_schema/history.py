"""The history of work: decisions, changes of phase, use, and reports of jobs.

The ledger keeps the rows, the REST API answers them, clients read them. Times are epoch seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec

from carrel_schema.answers import Answer
from carrel_schema.constraints import (
    MOST_METRICS,
    Constraint,
    MetricName,
    Number,
    ShortText,
    Text,
)
from carrel_schema.objects import ReasonInfo, Workload
from carrel_schema.sections import NotebookStatus

Step = Annotated[int, Constraint(ge=0, le=2**53)]
Amount = Annotated[float, Constraint(ge=0, le=1e308)]
ParameterText = Annotated[Text, Constraint(max_length=500)]


class Decision(Answer, frozen=True, kw_only=True):
    """An action of the scheduler's plan, with the version of the objects it was decided on.

    ``action`` is ``bind``, ``evict``, ``nominate``, ``stop`` (a limit struck) or ``refuse``.
    """

    id: int = 0
    at: float
    epoch: int = 0
    cycle: int = 0
    input_version: int = 0
    action: str = ""
    workload_uid: str = ""
    workload: str = ""
    project: str = ""
    node: str = ""
    devices: tuple[int, ...] = ()
    reason: ReasonInfo | None = None


class PlaceUse(Answer, frozen=True, kw_only=True):
    """The resources that a workload holds on the nodes of one GPU type and node group.

    Both are as they were when the workload changed its phase. ``gpu_type`` is empty where it holds
    no GPUs, or nobody tells of which type they are; ``node_group`` where its nodes are in none.
    """

    gpu_type: str = ""
    node_group: str = ""
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0


class Transition(Answer, frozen=True, kw_only=True):
    """A change of a workload's phase, with the resources that it holds from then on.

    ``gpu_milli``, ``cpu_milli`` and ``memory_bytes`` are what the workload holds after the change
    (0 when it holds nothing), so use is the sum over rows of amount x time to the next row.
    ``places`` divides these amounts by the nodes that they are on; rows of before there were
    places have none.
    """

    id: int = 0
    at: float
    epoch: int = 0
    workload_uid: str = ""
    workload: str = ""
    project: str = ""
    user: str = ""
    kind: str = ""
    attempt: int = 0
    from_phase: str = ""
    to_phase: str = ""
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    borrowed: bool = False
    node: str = ""
    places: tuple[PlaceUse, ...] = ()
    devices: tuple[int, ...] = ()
    reason: ReasonInfo | None = None

    @classmethod
    def first(cls, workload: Workload) -> "Transition":
        """The row of a workload's creation."""
        meta, spec = workload.meta, workload.spec
        return cls(
            at=meta.created_at,
            workload_uid=meta.uid,
            workload=meta.name,
            project=meta.project,
            user=spec.user,
            kind=spec.kind,
            to_phase="pending",
        )


class Usage(Answer, frozen=True, kw_only=True):
    """Use of one line of a grouping (see ``UsageKey``) in a span of time, from transitions.

    ``borrowed_gpu_seconds`` are a part of ``gpu_seconds``. ``gpu_used_seconds`` and
    ``gpu_idle_seconds`` were measured while they were allocated; the rest was not measured, or
    was held beside GPUs that worked. ``cost`` is that of what was allocated, by the price list.
    """

    key: str
    gpu_seconds: float = 0.0
    borrowed_gpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_byte_seconds: float = 0.0
    wait_seconds: float = 0.0
    preemptions: int = 0
    workloads: int = 0
    gpu_used_seconds: float = 0.0
    gpu_idle_seconds: float = 0.0
    cost: float = 0.0


class UsageSeries(Answer, frozen=True, kw_only=True):
    """GPU-hours over time: ``gpu_hours[i]`` of the part that begins at ``times[i]``, by key."""

    times: Sequence[float] = ()
    gpu_hours: Mapping[str, Sequence[float]] = {}
    since: float = 0.0
    until: float = 0.0


class Point(Answer, frozen=True, kw_only=True):
    """A reported value of a curve."""

    at: float
    step: int = 0
    value: float


Curves = Mapping[str, Sequence[Point]]
"""Reported values by name."""


class GpuUsePoint(Answer, frozen=True, kw_only=True):
    """Utilization and memory of a workload's GPUs at one time, as far as they were measured.

    ``gpus`` is the utilization (0 to 1) of its GPUs, summed up; ``memory_mib`` is what they used.
    """

    at: float
    gpus: float
    memory_mib: int = 0


class History(Answer, frozen=True, kw_only=True):
    """The changes and decisions of a workload, oldest first."""

    transitions: Sequence[Transition] = ()
    decisions: Sequence[Decision] = ()


class Reported(Answer, frozen=True, kw_only=True):
    """A job's report about itself; every field may be left out.

    ``checkpoint_step``: work up to there is saved; ``parameters`` are texts, numbers and
    switches by name; ``notebook`` is of notebook jobs only.
    """

    step: Step | None = None
    metrics: Annotated[Mapping[MetricName, Number], Constraint(max_length=MOST_METRICS)] = {}
    parameters: Annotated[
        Mapping[MetricName, ParameterText | Number | bool], Constraint(max_length=MOST_METRICS)
    ] = {}
    done: Amount | None = None
    total: Amount | None = None
    unit: Annotated[ShortText, Constraint(max_length=64)] = "step"
    rate: Amount | None = None
    checkpoint_step: Step | None = None
    notebook: NotebookStatus | None = None


class Report(Reported, frozen=True, kw_only=True):
    """A job's report, and when it came."""

    at: float = 0.0


class StudyLog(Answer, frozen=True, kw_only=True):
    """Entries of a study's log in Optuna's journal format; ``next`` follows the last of them."""

    entries: Sequence[msgspec.Raw] = ()
    next: int = 0
