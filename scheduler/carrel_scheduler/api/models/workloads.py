"""Requests about workloads: create, claim, report, sign of life."""

from typing import Annotated, Final, Literal, Self

from pydantic import Field, StrictInt, StrictStr, model_validator

from carrel_scheduler.api.models import fields, sections
from carrel_scheduler.api.models.fields import Request, refuse
from carrel_scheduler.api.problems import Code
from carrel_scheduler.workloads.launch import builtin_programs
from carrel_scheduler.workloads.reconcile.recording import MOST_METRICS
from carrel_schema.kinds import KINDS

MOST_ITEMS: Final = 1000
Files = Annotated[dict[fields.RelativePath, fields.FileText], Field(max_length=1000)]
Priority = (
    Annotated[StrictInt, Field(ge=0, le=1_000_000)] | Annotated[StrictStr, Field(max_length=64)]
)


class Volume(Request):
    """A folder that the task sees at ``destination`` (empty: where it is).

    On a cluster ``source`` is a volume claim of the project, or ``CLAIM/FOLDER``; an empty
    ``destination`` is the claim's name in the task's folder.
    """

    source: fields.VolumeSource
    destination: fields.DestinationPath = ""
    read_only: bool = False


class WorkloadCreate(Request):
    """A workload to create; amounts are those of one task."""

    name: fields.Name | None = None
    name_prefix: fields.NamePrefix | None = None
    project: fields.Name
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
    command: fields.Command = Field(default_factory=list)
    environment: fields.Environment = Field(default_factory=dict)
    secret_environment: fields.Environment = Field(default_factory=dict)
    files: Files = Field(default_factory=dict)
    working_dir: fields.WorkingDir = ""
    volumes: Annotated[list[Volume], Field(max_length=64)] = Field(default_factory=list)
    image: fields.ShortText = ""
    gpus: fields.Gpus = 0.0
    mig_profile: fields.MigProfile = ""
    cpu_millicores: Annotated[int, Field(ge=1, le=fields.MOST_CPU_MILLICORES)] = 100
    cpu_limit_millicores: Annotated[int, Field(ge=10, le=fields.MOST_CPU_MILLICORES)] | None = None
    memory_bytes: Annotated[
        int, Field(ge=fields.LEAST_MEMORY_BYTES, le=fields.MOST_MEMORY_BYTES)
    ] = 2**30
    tasks: Annotated[int, Field(ge=1, le=10_000)] = 1
    priority: Priority = ""
    preemptible: bool | None = None
    restart_policy: Literal["on-failure", "never", "always"] = "on-failure"
    backoff_limit: Annotated[int, Field(ge=0, le=1000)] = 6
    grace_seconds: Annotated[float, Field(ge=0, le=3600)] = 30.0
    checkpoint_every_seconds: Annotated[float, Field(ge=1, le=7 * 86_400)] | None = None
    continue_from: fields.ShortText = ""
    large_shm: bool = False
    node_group: fields.ShortText = ""
    inputs: Annotated[list[fields.ShortText], Field(max_length=1000)] = Field(default_factory=list)
    labels: fields.Labels = Field(default_factory=dict)
    user: Annotated[fields.ShortText, Field(min_length=1)] | None = None
    server_name: fields.ShortText | None = None
    port: fields.Port | None = None
    hold_for_claim: bool | None = None
    external: bool | None = None
    routes: Annotated[list[sections.RouteIn], Field(max_length=16)] = Field(default_factory=list)
    rendezvous: sections.RendezvousIn | None = None
    elastic: sections.ElasticIn | None = None
    experiment: sections.ExperimentIn | None = None
    inference: sections.InferenceIn | None = None
    notebook: sections.NotebookIn | None = None
    schedule: sections.ScheduleIn | None = None
    tensorboard: sections.TensorBoardIn | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.name is None and self.name_prefix is None:
            refuse(Code.NAME_REQUIRED, "a `name`, or a `name_prefix` to number from")
        if self.name is not None and self.name_prefix is not None:
            refuse(Code.NAME_AND_PREFIX, "either `name` or `name_prefix`, not both")
        sections.check_sections(self.kind, self.sections_given())
        sections.check_runs(self.schedule, notebook=self.notebook is not None)
        self._own_program()
        own_command = not sections.needs_command(self.kind, self.schedule)
        later = self.hold_for_claim or self.external
        if not self.command and not later and not own_command:
            refuse(Code.COMMAND_REQUIRED, "a `command` with at least the program to run")
        self._run_by_the_hub()
        if self.mig_profile and self.gpus:
            refuse(Code.MIG_AND_GPUS, "`gpus` 0 with a `mig_profile`: one or the other")
        sections.check_routes(self.kind, self.routes)
        sections.check_elastic(self.elastic, self.rendezvous, tasks=self.tasks, gpus=self.gpus)
        if self.tasks != 1 and not KINDS[self.kind].gang:
            refuse(Code.WORKSPACE_SINGLE_TASK, f"`tasks` 1: a {self.kind} is one task")
        if sum(len(text.encode()) for text in self.files.values()) > fields.MOST_FILES_BYTES:
            refuse(
                Code.FILES_TOO_LARGE, "`files` of at most 1 MiB in all; put larger ones on a volume"
            )
        return self

    def _own_program(self) -> None:
        foreign = builtin_programs.foreign_fields(self.kind, self)
        if foreign:
            refuse(Code.OWN_PROGRAM, builtin_programs.expected(self.kind, foreign[0]))

    def _run_by_the_hub(self) -> None:
        if not self.external:
            return
        if self.kind != "workspace":
            refuse(Code.EXTERNAL_WORKSPACE, f"no `external`: the Hub runs no {self.kind}")
        if self.command:
            refuse(Code.EXTERNAL_WORKSPACE, "either a `command` or `external`, not both")

    def sections_given(self) -> frozenset[str]:
        """The names of the kinds' own sections that are there."""
        given = self.model_fields_set.intersection(sections.SECTIONS)
        return frozenset(name for name in given if getattr(self, name) is not None)

    def spawner_fields(self) -> list[str]:
        """Fields in use that only the spawner may set."""
        names = ("user", "server_name", "port", "hold_for_claim", "external")
        return [name for name in names if getattr(self, name) is not None]


class WorkloadBatch(Request):
    """Workloads to create together. Each has a name, which makes repeating the request safe."""

    items: Annotated[list[WorkloadCreate], Field(min_length=1, max_length=MOST_ITEMS)]

    @model_validator(mode="after")
    def _names(self) -> Self:
        seen: set[tuple[str, str]] = set()
        for item in self.items:
            if item.name is None:
                refuse(Code.NAME_REQUIRED, "a `name` in every item; a batch numbers nothing")
            if (item.project, item.name) in seen:
                refuse(Code.NAME_TWICE, f"each name once; `{item.project}/{item.name}` comes twice")
            seen.add((item.project, item.name))
        return self

    @property
    def projects(self) -> frozenset[str]:
        """All projects that it is about."""
        return frozenset(item.project for item in self.items)


class Claim(Request):
    """What a workspace that got its turn is to run; ``external``: the Hub runs it itself."""

    command: fields.Command = Field(default_factory=list)
    environment: fields.Environment = Field(default_factory=dict)
    secret_environment: fields.Environment = Field(default_factory=dict)
    working_dir: fields.WorkingDir = ""
    port: fields.Port | None = None
    external: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if not self.command and not self.external:
            refuse(Code.COMMAND_REQUIRED, "a `command` with at least the program to run")
        if self.command and self.external:
            refuse(Code.EXTERNAL_WORKSPACE, "either a `command` or `external`, not both")
        return self


ParameterText = Annotated[fields.Text, Field(max_length=500)]


class ReportIn(Request):
    """What a job says about itself; every field may be left out."""

    step: fields.Step | None = None
    metrics: Annotated[dict[fields.MetricName, fields.Number], Field(max_length=MOST_METRICS)] = (
        Field(default_factory=dict)
    )
    parameters: Annotated[
        dict[fields.MetricName, ParameterText | fields.Number | bool],
        Field(max_length=MOST_METRICS),
    ] = Field(default_factory=dict)
    done: Annotated[float, Field(ge=0, le=1e308)] | None = None
    total: Annotated[float, Field(ge=0, le=1e308)] | None = None
    unit: Annotated[fields.ShortText, Field(max_length=64)] = "step"
    rate: Annotated[float, Field(ge=0, le=1e308)] | None = None
    checkpoint_step: fields.Step | None = None
    notebook: sections.NotebookReportIn | None = None
    at: fields.EpochSeconds | None = None


class ActivityIn(Request):
    """A workspace's sign of life; times are epoch seconds, ``at`` defaults to now."""

    server_name: fields.ShortText = ""
    at: fields.EpochSeconds | None = None
    busy_since: fields.EpochSeconds | None = None
    last_input_at: fields.EpochSeconds = 0.0
    kernels: Annotated[int, Field(ge=0, le=100_000)] = 0
    terminals: Annotated[int, Field(ge=0, le=100_000)] = 0
