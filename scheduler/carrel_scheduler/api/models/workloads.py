"""Requests about workloads: batches, changes, claims, reports and activity."""

from typing import Annotated, Any, Final

import msgspec

from carrel_schema.constraints import (
    MOST_EPOCH_SECONDS,
    Command,
    Constraint,
    Environment,
    Files,
    Gpus,
    LabelKey,
    LabelValue,
    Port,
    PositiveSeconds,
    SharedGpus,
    ShortText,
    StallSeconds,
    Text,
    WorkingDir,
)
from carrel_schema.history import Reported
from carrel_schema.objects import Priority, Tasks
from carrel_schema.sections import Access, Elastic, InferenceSpec
from carrel_schema.wire import TaskCores, TaskMemory, WorkloadCreate

MOST_ITEMS: Final = 1000
EpochSeconds = Annotated[float, Constraint(ge=0, le=MOST_EPOCH_SECONDS)]
Count = Annotated[int, Constraint(ge=0, le=100_000)]


class WorkloadBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Workloads to create together. Each has a name, so that repeating the request is safe."""

    items: Annotated[list[WorkloadCreate], Constraint(min_length=1, max_length=MOST_ITEMS)]

    @property
    def projects(self) -> frozenset[tuple[str, str]]:
        """The projects of the batch, with the kinds of work for each."""
        return frozenset((item.project, item.kind) for item in self.items)


class WorkspaceClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The command for a held workspace to run; ``external``: the Hub runs the server itself."""

    command: Command = []
    environment: Environment = {}
    secret_environment: Environment = {}
    working_dir: WorkingDir = ""
    port: Port | None = None
    external: bool = False


class WorkloadChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that may change after submission; ``services.changes`` says when.

    A change of what an endpoint's replicas run makes a new revision. A null label is removed.
    """

    priority: Priority = ""
    preemptible: bool | None = None
    tasks: Tasks = 1
    elastic: Elastic | None = None
    time_limit_seconds: PositiveSeconds | None = None
    idle_timeout_seconds: PositiveSeconds | None = None
    restart_when_stalled: bool | None = None
    stall_after_seconds: StallSeconds | None = None
    labels: Annotated[dict[LabelKey, LabelValue | None], Constraint(max_length=64)] = {}
    command: Annotated[list[Text], Constraint(min_length=1, max_length=1024)] = []
    environment: Environment = {}
    files: Files = {}
    working_dir: WorkingDir = ""
    gpus: Gpus = 0.0
    gpu_devices: SharedGpus = 1
    cpu_millicores: TaskCores = 100
    memory_bytes: TaskMemory = 2**30
    inference: InferenceSpec = InferenceSpec()


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """The access to a route from now on; ``route`` is its name, empty for the first."""

    access: Access
    route: ShortText = ""


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """A request to run work again; ``changes`` are the fields of its request that differ."""

    changes: Annotated[dict[ShortText, Any], Constraint(max_length=64)] = {}


class ReportIn(Reported, frozen=True, kw_only=True):
    """A job's report; without ``at`` it is of now."""

    at: EpochSeconds | None = None


class ActivityIn(msgspec.Struct, frozen=True, kw_only=True):
    """Activity of a workspace; times are epoch seconds, ``at`` is now by default."""

    server_name: ShortText = ""
    at: EpochSeconds | None = None
    busy_since: EpochSeconds | None = None
    last_input_at: EpochSeconds = 0.0
    kernels: Count = 0
    terminals: Count = 0
