"""What only some kinds of work are asked with. Each section is that of ``ledger.sections``.

A kind's own checks stand beside its section; what a kind needs and may not have is in ``FOR_KIND``.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    model_validator,
)

from carrel_scheduler.api.models import fields
from carrel_scheduler.api.models.fields import Request, refuse
from carrel_scheduler.api.problems import Code
from carrel_scheduler.policy import cron

Choice = StrictStr | StrictInt | StrictFloat | StrictBool | None
ParameterName = Annotated[fields.ShortText, Field(min_length=1)]
Parameters = Annotated[dict[ParameterName, Any], Field(max_length=1000)]
MOST_POINTS: Final = 100_000
MOST_INT: Final = 2**53


class RendezvousIn(Request):
    """How the members of a gang find each other."""

    launcher: Literal["each", "mpi"] = "each"
    join_timeout_seconds: fields.PositiveSeconds = 600.0


class ElasticIn(Request):
    """Starts with less than it asks for, grows into idle room, shrinks first."""

    min_tasks: Annotated[int, Field(ge=0, le=10_000)] = 0
    gpus_of_task: bool = False


class ParameterIn(Request):
    """One dimension of a search space."""

    type: Literal["float", "int", "categorical"]
    low: fields.Number | None = None
    high: fields.Number | None = None
    step: Annotated[float, Field(gt=0, le=1e308)] | None = None
    log: bool = False
    choices: Annotated[list[Choice], Field(max_length=1000)] = Field(default_factory=list)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.type == "categorical":
            if not self.choices or self.low is not None or self.high is not None:
                refuse(Code.BAD_SEARCH_SPACE, "`choices` and nothing else for a categorical one")
            if len(set(self.choices)) != len(self.choices):
                refuse(Code.BAD_SEARCH_SPACE, "each of the `choices` once")
            return self
        if self.choices or self.low is None or self.high is None or self.low > self.high:
            refuse(Code.BAD_SEARCH_SPACE, "`low` and `high` with low <= high for a number")
        if self.log and (self.low <= 0 or self.step is not None):
            refuse(Code.BAD_SEARCH_SPACE, "`low` above 0 and no `step` on a logarithmic scale")
        if self.type == "int" and any(
            one is not None and one != int(one) for one in (self.low, self.high, self.step)
        ):
            refuse(Code.BAD_SEARCH_SPACE, "whole numbers for an int")
        if self.step is not None and (self.high - self.low) / self.step > MOST_INT:
            refuse(Code.BAD_SEARCH_SPACE, f"at most {MOST_INT} steps from `low` to `high`")
        if self.type == "int" and max(abs(self.low), abs(self.high)) > MOST_INT:
            refuse(Code.BAD_SEARCH_SPACE, f"an int between {-MOST_INT} and {MOST_INT}")
        return self

    @property
    def points(self) -> float:
        """How many values it has, on a grid."""
        if self.type == "categorical":
            return len(self.choices)
        return ((self.high or 0.0) - (self.low or 0.0)) // (self.step or 1.0) + 1


class ExperimentIn(Request):
    """A search for good hyperparameters."""

    parameters: Annotated[dict[ParameterName, ParameterIn], Field(max_length=200)] = Field(
        default_factory=dict
    )
    metric: ParameterName = "objective"
    direction: Literal["minimize", "maximize"] = "minimize"
    sampler: Literal["tpe", "random", "grid", "cmaes"] = "tpe"
    pruner: Literal["none", "median", "hyperband"] = "none"
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] | None = None
    completions: Annotated[int, Field(ge=1, le=100_000)] = 10
    parallelism: Annotated[int, Field(ge=1, le=1000)] = 1
    max_failed_trials: Annotated[int, Field(ge=0, le=100_000)] = 3

    @model_validator(mode="after")
    def _searchable(self) -> Self:
        if self.sampler != "grid":
            return self
        if not self.parameters:
            refuse(Code.BAD_SEARCH_SPACE, "`parameters`: a grid needs them declared")
        for name, one in self.parameters.items():
            if one.type == "float" and one.step is None:
                refuse(Code.BAD_SEARCH_SPACE, f"a `step` for `{name}`: a grid counts its values")
        if math.prod(one.points for one in self.parameters.values()) > MOST_POINTS:
            refuse(Code.BAD_SEARCH_SPACE, f"at most {MOST_POINTS:,} points in a grid")
        return self


class RouteIn(Request):
    """A port that people reach through the gateway."""

    port: Annotated[int, Field(ge=0, le=65_535)] = 0
    name: Annotated[str, fields.StringConstraints(pattern=r"^([a-z0-9][-a-z0-9]{0,31})?$")] = ""
    access: Literal["user", "project", "everyone"] = "user"
    keep_prefix: bool = False
    timeout_seconds: fields.PositiveSeconds = 300.0
    max_request_bytes: Annotated[int, Field(ge=1, le=2**40)] = 64 * 1024 * 1024
    idle_seconds: fields.PositiveSeconds | None = None


def check_routes(kind: str, routes: Sequence[RouteIn]) -> None:
    """Refuse two routes of one name, and fixed ports where several tasks need one each."""
    names = [route.name for route in routes]
    if len(set(names)) < len(names):
        refuse(Code.ROUTE_TWICE, "a `name` of its own for each of several `routes`")
    if kind == "inference" and any(route.port for route in routes):
        refuse(
            Code.FIXED_PORT,
            "`port` 0: each replica has a port of its own, which it finds as PORT in its "
            "environment or as $(PORT) in its command",
        )


class InferenceIn(Request):
    """A served endpoint."""

    min_replicas: Annotated[int, Field(ge=0, le=1000)] = 1
    max_replicas: Annotated[int, Field(ge=1, le=1000)] = 1
    in_flight_per_replica: Annotated[int, Field(ge=1, le=100_000)] = 8
    readiness_path: fields.ShortText = ""
    startup_seconds: fields.PositiveSeconds = 600.0
    idle_seconds: fields.PositiveSeconds = 300.0
    drain_seconds: fields.Seconds = 30.0

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.min_replicas > self.max_replicas:
            refuse(Code.BAD_RANGE, "`min_replicas` not above `max_replicas`")
        return self


class NotebookIn(Request):
    """A notebook that runs as a job."""

    path: fields.PathText
    output: Annotated[str, fields.StringConstraints(max_length=4096, pattern=fields.NO_NUL)] = ""
    parameters: Parameters = Field(default_factory=dict)
    kernel: fields.ShortText = ""
    cell_timeout_seconds: fields.PositiveSeconds | None = None


class NotebookReportIn(Request):
    """What a notebook's run says about itself, see ``ledger.sections.NotebookStatus``."""

    cell: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    cells: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    output: Annotated[str, fields.StringConstraints(max_length=4096, pattern=fields.NO_NUL)] = ""
    resumed_from: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    error: Annotated[str, fields.StringConstraints(max_length=2000, pattern=fields.NO_NUL)] = ""
    code: fields.ShortText = ""


def _cron(value: str) -> str:
    try:
        cron.check(value)
    except cron.BadCron as error:
        refuse(Code.BAD_CRON, str(error))
    return value


def _time_zone(value: str) -> str:
    try:
        cron.zone(value)
    except cron.BadTimeZone as error:
        refuse(Code.BAD_TIME_ZONE, str(error))
    return value


Cron = Annotated[fields.ShortText, AfterValidator(_cron)]
TimeZone = Annotated[fields.ShortText, AfterValidator(_time_zone)]


class ScheduleIn(Request):
    """Work that is begun by the clock."""

    cron: Cron
    time_zone: TimeZone = "UTC"
    runs: Literal["notebook", "training"] = "notebook"
    overlap: Literal["skip", "allow", "replace"] = "skip"
    keep: Annotated[int, Field(ge=1, le=1000)] = 5
    starting_deadline_seconds: fields.PositiveSeconds = 3600.0


class TensorBoardIn(Request):
    """A TensorBoard over the event files of jobs."""

    jobs: Annotated[list[fields.Name], Field(min_length=1, max_length=100)]
    idle_seconds: fields.PositiveSeconds = 1800.0


@dataclass(frozen=True, slots=True)
class Needs:
    """What a kind of work is asked with.

    Attributes:
        required: sections without which it says nothing.
        allowed: further sections.
        command: whether it needs one; otherwise it has its own.
    """

    required: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    command: bool = True


FOR_KIND: Final[Mapping[str, Needs]] = {
    "training": Needs(allowed=frozenset({"elastic"})),
    "workspace": Needs(),
    "distributed": Needs(allowed=frozenset({"rendezvous", "elastic"})),
    "experiment": Needs(required=frozenset({"experiment"})),
    "inference": Needs(required=frozenset({"inference"})),
    "notebook": Needs(required=frozenset({"notebook"}), command=False),
    "schedule": Needs(
        required=frozenset({"schedule"}), allowed=frozenset({"notebook"}), command=False
    ),
    "tensorboard": Needs(required=frozenset({"tensorboard"}), command=False),
}
SECTIONS: Final = frozenset().union(*(one.required | one.allowed for one in FOR_KIND.values()))


def needs_command(kind: str, schedule: ScheduleIn | None) -> bool:
    """Whether work of this kind says nothing without a command."""
    return FOR_KIND[kind if schedule is None else schedule.runs].command


def check_runs(schedule: ScheduleIn | None, *, notebook: bool) -> None:
    """Refuse a schedule without what its runs need, or with what they do not have."""
    if schedule is None:
        return
    if schedule.runs == "notebook" and not notebook:
        refuse(Code.SECTION_REQUIRED, "`notebook`, which the schedule's runs need")
    if schedule.runs != "notebook" and notebook:
        refuse(Code.SECTION_OF_ANOTHER_KIND, f"no `notebook`: its runs are a {schedule.runs}")


def check_elastic(
    elastic: ElasticIn | None, rendezvous: RendezvousIn | None, *, tasks: int, gpus: float
) -> None:
    """Refuse elasticity that means nothing for so many tasks with so many GPUs each."""
    if elastic is None:
        return
    if elastic.min_tasks > tasks:
        refuse(Code.BAD_RANGE, f"`elastic.min_tasks` not above `tasks` ({tasks})")
    if elastic.gpus_of_task and (tasks > 1 or elastic.min_tasks):
        refuse(Code.BAD_ELASTIC, "either `gpus_of_task` for one task, or `min_tasks` for several")
    if elastic.gpus_of_task and (gpus < 1 or gpus != int(gpus)):
        refuse(Code.BAD_ELASTIC, "whole `gpus`, at least 1, where their number may change")
    if rendezvous is not None and rendezvous.launcher == "mpi" and elastic.min_tasks:
        refuse(Code.BAD_ELASTIC, "no `min_tasks` with the launcher `mpi`, whose size is fixed")


def check_sections(kind: str, given: frozenset[str]) -> None:
    """Refuse sections that the kind does not have, and the lack of one that it needs."""
    needs = FOR_KIND[kind]
    missing = sorted(needs.required - given)
    if missing:
        refuse(Code.SECTION_REQUIRED, f"`{missing[0]}`, without which a {kind} says nothing")
    foreign = sorted(given - needs.required - needs.allowed)
    if foreign:
        refuse(Code.SECTION_OF_ANOTHER_KIND, f"no `{foreign[0]}`: a {kind} has none")
