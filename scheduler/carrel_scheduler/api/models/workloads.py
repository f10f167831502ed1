"""Requests about workloads: several at once, claim, report, sign of life, changes of endpoints."""

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
    """Workloads to create together. Each has a name, which makes repeating the request safe."""

    items: Annotated[list[WorkloadCreate], Constraint(min_length=1, max_length=MOST_ITEMS)]

    @property
    def projects(self) -> frozenset[tuple[str, str]]:
        """All projects that it is about, with the kinds of work there."""
        return frozenset((item.project, item.kind) for item in self.items)


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What a workspace that got its turn is to run; ``external``: the Hub runs it itself."""

    command: Command = []
    environment: Environment = {}
    secret_environment: Environment = {}
    working_dir: WorkingDir = ""
    port: Port | None = None
    external: bool = False


class WorkloadChanges(msgspec.Struct, frozen=True, kw_only=True):
    """What may change after submission; ``services.changes`` says when.

    Whatever replicas of an endpoint run makes a new revision. A label that is null is removed.
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
    """Who may come in by a route from now on; ``route`` is its name, empty for the first."""

    access: Access
    route: ShortText = ""


class Rerun(msgspec.Struct, frozen=True, kw_only=True):
    """Work to be run again; ``changes`` are fields of its request that are to be otherwise."""

    changes: Annotated[dict[ShortText, Any], Constraint(max_length=64)] = {}


class ReportIn(Reported, frozen=True, kw_only=True):
    """What a job says about itself; without a time it is of now."""

    at: EpochSeconds | None = None


class ActivityIn(msgspec.Struct, frozen=True, kw_only=True):
    """A workspace's sign of life; times are epoch seconds, ``at`` defaults to now."""

    server_name: ShortText = ""
    at: EpochSeconds | None = None
    busy_since: EpochSeconds | None = None
    last_input_at: EpochSeconds = 0.0
    kernels: Count = 0
    terminals: Count = 0
