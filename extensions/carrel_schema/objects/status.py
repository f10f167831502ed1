"""The status of work, and the workload as a whole."""

from typing import Any, Literal

import msgspec

from carrel_schema import sections
from carrel_schema.objects.projects import StayRule
from carrel_schema.objects.work import Meta, WorkloadSpec

Phase = Literal[
    "pending",
    "starting",
    "running",
    "preempting",
    "stopping",
    "succeeded",
    "failed",
    "stopped",
]
FailureClass = Literal["application", "memory", "crash", "stalled", "gpu", "node", "lost"]
LossCause = Literal["", "gpu", "node"]
"""The part that was lost under a lost task; empty where that is not known."""


class StatusPart(msgspec.Struct, frozen=True, kw_only=True):
    """Base of the parts of a status; clients take fields that an answer leaves out as empty."""


class ReasonInfo(StatusPart, frozen=True, kw_only=True):
    """A reason for people and programs: token, class, sentence and the data of the sentence."""

    token: str
    cls: str = ""
    sentence: str = ""
    help: str = ""
    data: dict[str, Any] = {}


class TaskInfo(StatusPart, frozen=True, kw_only=True):
    """The present run of one task.

    Attributes:
        ports: the ports that it was given, by the names of its routes.
        lost: whether it ended and its exit status is not known.
        loss: whether a lost task was lost with its GPU or its node.
        place: whether it holds its resources: ``held``; ``leaving`` while it ends for others;
            ``given-back`` once it has ended so, and may start again; ``done`` when it succeeded.
        returns: those of ``devices`` that it releases while it goes on with the others.
        address: where its servers listen, where it has an address of its own; else its node's.
        mig_slots: the memory slots of its MIG instance, as bits, where Carrel divides the GPU.
    """

    index: int
    attempt: int
    node: str
    devices: tuple[int, ...] = ()
    mig_slots: int = 0
    pid: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int = 0
    message: str = ""
    ports: dict[str, int] = {}
    lost: bool = False
    loss: LossCause = ""
    place: Literal["held", "leaving", "given-back", "done"] = "held"
    returns: tuple[int, ...] = ()
    address: str = ""


class Checkpoint(StatusPart, frozen=True, kw_only=True):
    """The last checkpoint that a job reported."""

    step: int
    at: float


class Progress(StatusPart, frozen=True, kw_only=True):
    """The progress that a job reported."""

    done: float
    total: float | None = None
    unit: str = "step"
    at: float = 0.0
    rate: float | None = None


class Preemption(StatusPart, frozen=True, kw_only=True):
    """A preemption: when, for which workload and by which rule it happened, and what was lost."""

    at: float
    rule: str
    for_project: str
    for_workload: str
    for_workload_uid: str = ""
    lost_seconds: float = 0.0
    checkpoint_step: int | None = None


class Failure(StatusPart, frozen=True, kw_only=True):
    """The last attempt that failed.

    Attributes:
        cls: ``application``: another attempt would fail alike; ``memory``: it used more than it
            asked for; ``crash``: any other exit; ``stalled``: it stood still and was ended;
            ``gpu``, ``node``: with its GPU or its node; ``lost``: nobody knows how.
        cause: the exception, or the last line of its output.
        again: the attempt before ended in the same way, both within seconds.
        ran_seconds: how long the attempt ran.
    """

    at: float
    attempt: int
    cls: FailureClass = "crash"
    cause: str = ""
    again: bool = False
    exit_code: int | None = None
    signal: int = 0
    ran_seconds: float = 0.0


class Limits(StatusPart, frozen=True, kw_only=True):
    """The limits of a running workload, and when it is stopped by them next.

    ``stops_at`` with ``stops_because`` (``TimeLimit`` or ``Idle``) is the next stop that is coming
    if nothing changes; ``warn_at`` is when the owner is told.
    """

    stops_at: float | None = None
    stops_because: str = ""
    warn_at: float | None = None
    idle_since: float | None = None
    extended_until: float | None = None
    may_extend: bool = False
    extensions: int = 0


class WorkloadStatus(msgspec.Struct, kw_only=True):
    """The state of a workload. Only the reconciler writes it.

    Attributes:
        reason: of a pending, preempted, stopped or failed workload; of others ``None``.
        attempt: number of the present or next run, from 0.
        failures: attempts that failed and count against ``backoff_limit``.
        losses: attempts in a row that were lost soon after they began, with their node or GPU.
        failed_nodes: where the last attempts crashed or were lost, the latest first; other nodes
            are taken first, unless it asks for no such care (``avoid_failed_nodes``).
        failed_devices: the GPUs of those attempts, or those at fault, as ``NODE/INDEX``, where
            nodes tell their GPUs apart; others of the node are taken first.
        queue_position: place among all waiting workloads, from 1.
        borrowed: runs beyond its project's guaranteed quota.
        lowered_by: the scope of a budget that was used up when it was queued, so that it has the
            lowest priority and is preemptible; empty: none.
        rule: the project's limits that it was started under.
        ran_seconds: time in running before the present run; its time limit goes on from there.
        parameters: what the job said it was run with: texts, numbers, switches, by name.
        experiment, endpoint, notebook, schedule: see ``sections``; only of the kinds that have
            them.
    """

    phase: Phase = "pending"
    reason: ReasonInfo | None = None
    observed_generation: int = 0
    observed_resumes: int = 0
    tasks: list[TaskInfo] = []
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    failed_nodes: tuple[str, ...] = ()
    failed_devices: tuple[str, ...] = ()
    preemptions: int = 0
    queue_position: int | None = None
    borrowed: bool = False
    queued_at: float = 0.0
    started_at: float | None = None
    first_started_at: float | None = None
    ended_at: float | None = None
    not_before: float | None = None
    progress: Progress | None = None
    checkpoint: Checkpoint | None = None
    metrics: dict[str, float] = {}
    parameters: dict[str, Any] = {}
    last_preemption: Preemption | None = None
    last_failure: Failure | None = None
    limits: Limits | None = None
    lowered_by: str = ""
    rule: StayRule | None = None
    ran_seconds: float = 0.0
    experiment: sections.ExperimentStatus | None = None
    endpoint: sections.EndpointStatus | None = None
    notebook: sections.NotebookStatus | None = None
    schedule: sections.ScheduleStatus | None = None


class Workload(msgspec.Struct, kw_only=True):
    """A workload."""

    meta: Meta
    spec: WorkloadSpec
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)
