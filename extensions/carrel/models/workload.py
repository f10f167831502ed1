"""Workloads: what a user asked for and what became of it."""

from typing import Any, Final

import msgspec

from carrel_schema import sections

HOLDING: Final = frozenset({"starting", "running", "preempting", "stopping"})
AT_REST: Final = frozenset({"succeeded", "failed", "stopped"})


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why a workload waits, gives way, stopped or failed; ``sentence`` and ``help`` are for people.

    ``token`` is stable and for machines; ``cls`` is ``never``, ``not-now``, ``held-back``,
    ``starting`` or ``evicted``.
    """

    token: str = ""
    cls: str = ""
    sentence: str = ""
    help: str = ""
    data: dict[str, Any] = {}


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One task's present run."""

    index: int = 0
    attempt: int = 0
    node: str = ""
    devices: tuple[int, ...] = ()
    pid: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int = 0
    message: str = ""
    ports: dict[str, int] = {}
    lost: bool = False
    place: str = "held"
    returns: tuple[int, ...] = ()
    address: str = ""


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The last saved state a job told of."""

    step: int = 0
    at: float = 0.0


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job is, as it says itself; ``rate`` in units per second."""

    done: float = 0.0
    total: float | None = None
    unit: str = "step"
    at: float = 0.0
    rate: float | None = None


class Preemption(msgspec.Struct, frozen=True, kw_only=True):
    """When, for whom, under which rule, and what was lost."""

    at: float = 0.0
    rule: str = ""
    for_project: str = ""
    for_workload: str = ""
    for_workload_uid: str = ""
    lost_seconds: float = 0.0
    checkpoint_step: int | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Interactive limits of a running workspace and when they strike next.

    ``stops_because`` is ``TimeLimit`` or ``Idle``; ``warn_at`` is when the owner is told;
    ``extensions`` counts how often it was kept.
    """

    stops_at: float | None = None
    stops_because: str = ""
    warn_at: float | None = None
    idle_since: float | None = None
    extended_until: float | None = None
    extensions: int = 0
    may_extend: bool = False


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A folder made visible to the tasks; ``read_only``: they may not write to it."""

    source: str
    destination: str = ""
    read_only: bool = False

    @property
    def spelt(self) -> str:
        """As ``--volume`` takes it."""
        where = f":{self.destination}" if self.destination not in ("", self.source) else ""
        return f"{self.source}{where}{':ro' if self.read_only else ''}"


class WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. ``files`` maps names to sizes in bytes; secrets are never shown."""

    kind: str = "training"
    user: str = ""
    command: list[str] = []
    environment: dict[str, str] = {}
    files: Any = {}
    working_dir: str = ""
    volumes: list[Volume] = []
    image: str = ""
    gpus: float = 0.0
    cpu_millicores: int = 100
    cpu_limit_millicores: int | None = None
    memory_bytes: int = 1024**3
    tasks: int = 1
    priority: str | int = ""
    preemptible: bool | None = None
    suspend: bool = False
    delete: bool = False
    restart_policy: str = "on-failure"
    backoff_limit: int = 6
    grace_seconds: float = 30.0
    checkpoint_every_seconds: float | None = None
    large_shm: bool = False
    inputs: list[str] = []
    hold_for_claim: bool = False
    server_name: str = ""
    port: int | None = None
    external: bool = False
    mig_profile: str = ""
    continue_from: str = ""
    node_group: str = ""
    owner: str = ""
    part: int = 0
    routes: list[sections.Route] = []
    rendezvous: sections.Rendezvous | None = None
    elastic: sections.Elastic | None = None
    experiment: sections.ExperimentSpec | None = None
    trial: sections.TrialSpec | None = None
    inference: sections.InferenceSpec | None = None
    notebook: sections.NotebookSpec | None = None
    schedule: sections.ScheduleSpec | None = None
    tensorboard: sections.TensorBoardSpec | None = None


class WorkloadStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is. ``queue_position`` counts from 1; ``borrowed``: beyond the project's guarantee."""

    phase: str = "pending"
    reason: Reason | None = None
    observed_generation: int = 0
    tasks: list[Task] = []
    attempt: int = 0
    failures: int = 0
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
    last_preemption: Preemption | None = None
    limits: Limits | None = None
    experiment: sections.ExperimentStatus | None = None
    endpoint: sections.EndpointStatus | None = None
    notebook: sections.NotebookStatus | None = None
    schedule: sections.ScheduleStatus | None = None


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """A workload: identity, specification, status."""

    name: str
    project: str
    uid: str = ""
    resource_version: int = 0
    generation: int = 0
    created_at: float = 0.0
    created_by: str = ""
    labels: dict[str, str] = {}
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def holds_resources(self) -> bool:
        """Whether it holds devices, processors and memory now."""
        return self.status.phase in HOLDING

    @property
    def at_rest(self) -> bool:
        """Whether nothing more happens to it by itself (it succeeded, failed or was stopped)."""
        return self.status.phase in AT_REST


class WorkloadPage(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list; ``next`` is the ``after`` of the following page."""

    items: list[Workload] = []
    next: str | None = None


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a dry run: the workload as it would be, and what it would meet."""

    workload: Workload | None = None
    forecast: Reason = Reason()
