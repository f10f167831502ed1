"""Workloads in the REST API: requests and answers.

Both are what the ledger stores, with the amounts of a task counted as people do: GPUs as numbers
(``0.5``), cores in thousandths, memory in bytes.
"""

# ruff: noqa: RUF012 - msgspec copies defaults of descendants, too

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

import msgspec

from carrel_schema import sections
from carrel_schema.answers import Answer
from carrel_schema.constraints import (
    LEAST_MEMORY_BYTES,
    MOST_CPU_MILLICORES,
    MOST_MEMORY_BYTES,
    Constraint,
    DestinationPath,
    Environment,
    Files,
    Gpus,
    Labels,
    Mark,
    MemoryBytes,
    MigProfile,
    Name,
    NamePrefix,
    SharedGpus,
    ShortText,
    VolumeSource,
)
from carrel_schema.objects import ReasonInfo, Work, WorkloadStatus

BACK_OFF: Final = "BackOff"
"""The token of the reason of work that is retried."""
HOLDING: Final = frozenset({"starting", "running", "preempting", "stopping"})
AT_REST: Final = frozenset({"succeeded", "failed", "stopped"})
TaskCores = Annotated[int, Constraint(ge=1, le=MOST_CPU_MILLICORES)]
TaskMemory = Annotated[int, Constraint(ge=LEAST_MEMORY_BYTES, le=MOST_MEMORY_BYTES)]


class Volume(msgspec.Struct, frozen=True, kw_only=True):
    """A folder mounted into the task at ``destination`` (empty: at its own path).

    On a cluster ``source`` is a volume claim of the project, or ``CLAIM/FOLDER``; an empty
    ``destination`` is the claim's name in the task's folder. ``read_only``: tasks may not write.
    """

    source: VolumeSource
    destination: DestinationPath = ""
    read_only: bool = False

    @property
    def spelt(self) -> str:
        """The mount in the form of ``--volume``."""
        where = f":{self.destination}" if self.destination not in ("", self.source) else ""
        return f"{self.source}{where}{':ro' if self.read_only else ''}"


class WireWork(Work, kw_only=True):
    """The specification of work in REST; amounts are those of one task.

    Attributes:
        gpus: a whole number, or a share of one GPU in hundredths.
        gpu_memory_bytes: memory of one GPU that it shares, in place of ``gpus``; 0: none.
        gpu_devices: of how many GPUs of one node it has that share, or that memory, each.
        mig_profile: one MIG instance, as ``1g.10gb``, in place of GPUs.
        cpu_millicores: its share of the processors while others want them, too.
        cpu_limit_millicores: the most that it may use of idle processors; null: all.
        memory_bytes: set aside for it, and never more.
    """

    volumes: Annotated[list[Volume], Constraint(max_length=64)] = []
    gpus: Gpus = 0.0
    gpu_memory_bytes: MemoryBytes = 0
    gpu_devices: SharedGpus = 1
    mig_profile: MigProfile = ""
    cpu_millicores: TaskCores = 100
    cpu_limit_millicores: Annotated[int, Constraint(ge=10, le=MOST_CPU_MILLICORES)] | None = None
    memory_bytes: TaskMemory = 2**30

    @property
    def total_gpus(self) -> float:
        """GPUs of one task: a share counts once for each GPU that it is taken of."""
        return self.gpus * self.gpu_devices


class WorkloadCreate(WireWork, kw_only=True):
    """A workload to create; amounts are those of one task.

    Attributes:
        secret_environment: variables that are never shown again.
        user, server_name, hold_for_claim, external: only the Hub's spawner says these.
        template: name of the template whose values it takes where it says nothing.
        given: the fields that the request had; the defaults of some depend on the kind.
    """

    name: Name | None = None
    name_prefix: NamePrefix | None = None
    project: Name
    template: Name | None = None
    kind: Literal[
        "training",
        "workspace",
        "distributed",
        "experiment",
        "inference",
        "notebook",
        "schedule",
        "tensorboard",
    ] = "training"
    secret_environment: Environment = {}
    files: Files = {}
    labels: Labels = {}
    user: Annotated[ShortText, Constraint(min_length=1)] | None = None
    server_name: ShortText | None = None
    hold_for_claim: bool | None = None
    external: bool | None = None
    given: Annotated[frozenset[str], Mark.INTERNAL] = frozenset()

    def spawner_fields(self) -> list[str]:
        """Fields in use that only the spawner may set."""
        names = ("user", "server_name", "port", "hold_for_claim", "external")
        return [name for name in names if getattr(self, name) is not None]


class WorkloadSpecOut(WireWork, kw_only=True):
    """The specification of a workload without secrets; ``files`` by name and size in bytes.

    What only some kinds of work have is left out of all others.
    """

    user: str = ""
    files: dict[str, int] = {}
    suspend: bool = False
    delete: bool = False
    hold_for_claim: bool = False
    external: bool = False
    server_name: str = ""
    owner: str = ""
    part: int = 0
    trial: sections.TrialSpec | None = None
    blocked_by: list[str] = []
    parent: str = ""
    ancestors: list[str] = []


ALWAYS_SAID: Final = (
    *("kind", "user", "command", "environment", "files", "working_dir", "volumes", "image"),
    *("gpus", "cpu_millicores", "cpu_limit_millicores", "memory_bytes", "tasks", "priority"),
    *("preemptible", "suspend", "delete", "restart_policy", "backoff_limit", "grace_seconds"),
    *("checkpoint_every_seconds", "large_shm", "inputs", "hold_for_claim", "server_name", "port"),
)
"""Fields of ``WorkloadSpecOut`` that every answer has; others are left out at their default."""


class WorkloadOut(Answer, frozen=True, kw_only=True):
    """A workload: identity, specification, status."""

    name: str
    project: str
    uid: str = ""
    resource_version: int = 0
    generation: int = 0
    created_at: float = 0.0
    created_by: str = ""
    labels: Mapping[str, str] = {}
    spec: WorkloadSpecOut = msgspec.field(default_factory=WorkloadSpecOut)
    status: WorkloadStatus = msgspec.field(default_factory=WorkloadStatus)

    @property
    def holds_resources(self) -> bool:
        """Whether the workload holds GPUs, CPU and memory now."""
        return self.status.phase in HOLDING

    @property
    def is_retrying(self) -> bool:
        """Whether an attempt failed and another one follows after a pause."""
        reason = self.status.reason
        return self.status.phase == "pending" and reason is not None and reason.token == BACK_OFF

    @property
    def has_stalled(self) -> bool:
        """Whether the attempt that failed last was ended because it stood still."""
        failure = self.status.last_failure
        return failure is not None and failure.cls == "stalled"

    @property
    def at_rest(self) -> bool:
        """Whether the workload is at rest: it succeeded, failed or was stopped."""
        return self.status.phase in AT_REST


class WorkloadPage(Answer, frozen=True, kw_only=True):
    """A page of a list; ``next`` is the ``after`` of the following page, ``null`` at the end."""

    items: Sequence[WorkloadOut] = ()
    next: str | None = None


class Forecast(Answer, frozen=True, kw_only=True):
    """The answer to a dry run: the workload as it would be, and what would happen to it now."""

    workload: WorkloadOut
    forecast: ReasonInfo


class Remedy(Answer, frozen=True, kw_only=True):
    """A change after which a waiting workload would start, or get a reservation.

    Attributes:
        change: ``more-quota``, ``higher-limit``, ``more-quota-in-node-group``,
            ``higher-node-group-limit``, ``may-borrow``, ``preemptible`` or ``ends``.
        sentence: what to do, and who can.
        project, department: whose rule would change; of ``ends`` the project of the work that ends.
        resource, amount: what the quota or limit would have to be: ``gpu`` in thousandths, ``cpu``
            in millicores, ``memory`` in MiB.
        node_group: the group of nodes that this quota or limit is for.
        workload, workload_uid: the work that ends; empty for projects that the caller is not in.
    """

    change: str
    sentence: str = ""
    project: str = ""
    department: str = ""
    resource: str = ""
    amount: int = 0
    node_group: str = ""
    workload: str = ""
    workload_uid: str = ""


class RemedyList(Answer, frozen=True, kw_only=True):
    """Changes, each of which alone would unblock a waiting workload; the smallest first."""

    items: Sequence[Remedy] = ()
