"""What happened: events as they come, decisions and changes of state, curves and use."""

import msgspec

from carrel.models.workload import Reason, Workload


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What a job said about itself."""

    at: float | None = None
    step: int | None = None
    metrics: dict[str, float] = {}
    done: float | None = None
    total: float | None = None
    unit: str = "step"
    rate: float | None = None
    checkpoint_step: int | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One message of the event stream. ``type``: ``workload``, ``deleted`` or ``report``."""

    type: str
    id: str = ""
    workload: Workload
    report: Report | None = None


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a workload's phase, with what it held from then on."""

    at: float
    from_phase: str = ""
    to_phase: str = ""
    attempt: int = 0
    gpu_milli: int = 0
    cpu_milli: int = 0
    memory_bytes: int = 0
    borrowed: bool = False
    node: str = ""
    devices: tuple[int, ...] = ()
    reason: Reason | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of the scheduler about a workload.

    ``action`` is ``bind``, ``evict``, ``nominate``, ``stop`` or ``refuse``.
    """

    at: float
    action: str = ""
    cycle: int = 0
    node: str = ""
    devices: tuple[int, ...] = ()
    reason: Reason | None = None


class History(msgspec.Struct, frozen=True, kw_only=True):
    """A workload's past, oldest first."""

    transitions: list[Transition] = []
    decisions: list[Decision] = []


class MetricPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One reported value of a curve."""

    at: float
    step: int = 0
    value: float


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Use of a project, user or workload (``key``) in a span of time."""

    key: str
    gpu_seconds: float = 0.0
    borrowed_gpu_seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_byte_seconds: float = 0.0
    wait_seconds: float = 0.0
    preemptions: int = 0
    workloads: int = 0
