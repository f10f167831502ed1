"""Checks of requests that concern several fields at once.

Each check runs when every field is right by itself.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from carrel_scheduler.api.models.forms import refuse
from carrel_scheduler.api.models.workloads import WorkloadBatch, WorkspaceClaim
from carrel_scheduler.api.problems import Code
from carrel_scheduler.workloads.launch import builtin_programs
from carrel_schema.answers import DepartmentFields, ProjectFields
from carrel_schema.constraints import MOST_FILES_BYTES
from carrel_schema.kinds import KINDS, SECTIONS, WorkloadKind
from carrel_schema.objects import Work, WorkloadSpec
from carrel_schema.sections import (
    Elastic,
    ExperimentSpec,
    InferenceSpec,
    Parameter,
    Rendezvous,
    Route,
    ScheduleSpec,
)
from carrel_schema.wire import WorkloadCreate

MOST_POINTS: Final = 100_000
MOST_INT: Final = 2**53


def _workload(asked: WorkloadCreate) -> None:
    if asked.name is None and asked.name_prefix is None:
        refuse(Code.NAME_REQUIRED, "a `name`, or a `name_prefix` to number from")
    if asked.name is not None and asked.name_prefix is not None:
        refuse(Code.NAME_AND_PREFIX, "either `name` or `name_prefix`, not both")
    _sections(
        asked.kind, frozenset(one for one in SECTIONS if getattr(asked, one, None) is not None)
    )
    _runs(asked.schedule, notebook=asked.notebook is not None)
    foreign = builtin_programs.foreign_fields(asked.kind, asked)
    if foreign:
        refuse(Code.OWN_PROGRAM, builtin_programs.expected(asked.kind, foreign[0]))
    runs = asked.kind if asked.schedule is None else asked.schedule.runs
    later = asked.hold_for_claim or asked.external
    if KINDS[runs].command and not asked.command and not later:
        refuse(Code.COMMAND_REQUIRED, "a `command` with at least the program to run")
    if asked.command and not asked.command[0].strip():
        refuse(Code.COMMAND_REQUIRED, "a `command` whose first word is the program to run")
    if asked.external and asked.kind != "workspace":
        refuse(Code.EXTERNAL_WORKSPACE, f"no `external`: the Hub runs no {asked.kind}")
    if asked.external and asked.command:
        refuse(Code.EXTERNAL_WORKSPACE, "either a `command` or `external`, not both")
    if asked.mig_profile and asked.gpus:
        refuse(Code.MIG_AND_GPUS, "`gpus` 0 with a `mig_profile`: one or the other")
    if asked.gpu_memory_bytes and (asked.gpus or asked.mig_profile):
        refuse(Code.GPU_MEMORY_AND_GPUS, "`gpus` 0 and no `mig_profile` with `gpu_memory_bytes`")
    _shared(asked.gpu_devices, asked.gpus, is_share=bool(asked.gpu_memory_bytes))
    _types(asked)
    _code(asked)
    _limits(asked, bool(asked.gpus or asked.mig_profile or asked.gpu_memory_bytes))
    _routes(asked.kind, asked.routes)
    _size(asked, asked.gpus)
    files_fit(asked.files)


def fits_together(spec: WorkloadSpec) -> None:
    """Refuse limits and sizes of work that do not go with the rest of it."""
    resources = spec.resources
    asked = resources.gpu_memory_mib or resources.mig_profile
    _shared(resources.gpu_devices, resources.gpu_milli / 1000, is_share=bool(asked))
    _limits(spec, bool(resources.gpu_milli or resources.mig_profile))
    _size(spec, resources.gpu_milli / 1000)


def _shared(devices: int, gpus: float, *, is_share: bool) -> None:
    """Refuse several GPUs to share for work that does not ask for a share of each."""
    if devices > 1 and not (is_share or 0 < gpus < 1):
        refuse(Code.BAD_GPU_DEVICES, "`gpu_devices` 1, or with it `gpus` between 0 and 1")


def _size(asked: Work, gpus: float) -> None:
    if asked.elastic is not None and "elastic" not in KINDS[asked.kind].sections:
        refuse(Code.SECTION_OF_ANOTHER_KIND, f"no `elastic`: a {asked.kind} has none")
    _elastic(asked.elastic, asked.rendezvous, tasks=asked.tasks, gpus=gpus)
    if asked.tasks != 1 and not KINDS[asked.kind].gang:
        refuse(Code.WORKSPACE_SINGLE_TASK, f"`tasks` 1: a {asked.kind} is one task")


def _limits(asked: Work, has_gpus: bool) -> None:
    """Refuse limits that have no effect on work of its kind."""
    if asked.kind == "inference" and asked.time_limit_seconds is not None:
        refuse(Code.BAD_LIMIT, "no `time_limit_seconds`: an endpoint serves until it is stopped")
    _stall(asked, has_gpus)
    if asked.idle_timeout_seconds is None:
        return
    if asked.kind in ("inference", "tensorboard"):
        refuse(Code.BAD_LIMIT, f"no `idle_timeout_seconds`: a {asked.kind} counts its visitors")
    if asked.kind != "workspace" and not has_gpus:
        refuse(Code.BAD_LIMIT, "no `idle_timeout_seconds` without GPUs, which it is about")


def _stall(asked: Work, has_gpus: bool) -> None:
    """Check the fields about stalling: only jobs with GPUs have them, restarts only some kinds."""
    for field in ("restart_when_stalled", "stall_after_seconds"):
        if getattr(asked, field) is None:
            continue
        if not KINDS[asked.kind].gang:
            refuse(Code.BAD_STALL_RULE, f"no `{field}`: only trainings have it, no {asked.kind}")
        if not has_gpus:
            refuse(Code.BAD_STALL_RULE, f"no `{field}` without GPUs, whose work it is about")
    if asked.restart_when_stalled and asked.restart_policy == "never":
        refuse(
            Code.BAD_STALL_RULE,
            "`restart_policy` on-failure or always with `restart_when_stalled`, or neither",
        )


def _types(asked: WorkloadCreate) -> None:
    """Types of GPUs are for work with GPUs, levels for work whose tasks start together."""
    if asked.gpu_types and not (asked.gpus or asked.gpu_memory_bytes or asked.mig_profile):
        refuse(Code.GPU_TYPE_WITHOUT_GPUS, "`gpus` with `gpu_types`, or neither")
    if len({one.lower() for one in asked.gpu_types}) < len(asked.gpu_types):
        refuse(Code.GPU_TYPE_TWICE, "each of the `gpu_types` once, the best first")
    if (asked.topology_required or asked.topology_preferred) and not KINDS[asked.kind].gang:
        refuse(Code.TOPOLOGY_OF_GANG, f"no topology: a {asked.kind} is one task")


def _code(asked: WorkloadCreate) -> None:
    """The code of work is either a folder or a repository, and lies in the task's own folder."""
    places = [one.destination for one in asked.repositories]
    if len(set(places)) < len(places):
        refuse(Code.BAD_CODE, "`repositories` with a `destination` of its own each")
    if places and (asked.external or asked.kind == "workspace"):
        refuse(Code.BAD_CODE, "no `repositories` for a workspace")
    code = asked.code
    if code is None:
        return
    if code.secret and not code.git:
        refuse(Code.BAD_CODE, "`code.secret` with `code.git` only")
    if bool(code.digest) == bool(code.git):
        refuse(Code.BAD_CODE, "`code` with either `digest` or `git`")
    if code.revision and not code.git:
        refuse(Code.BAD_CODE, "`code.revision` with `code.git` only")
    if asked.working_dir or asked.external or asked.kind == "workspace":
        refuse(Code.BAD_CODE, "no `code` with a `working_dir`, and none for a workspace")


def files_fit(files: Mapping[str, str]) -> None:
    """Refuse files that are too large together."""
    if sum(len(text.encode()) for text in files.values()) > MOST_FILES_BYTES:
        refuse(Code.FILES_TOO_LARGE, "`files` of at most 1 MiB in all; put larger ones on a volume")


def _batch(asked: WorkloadBatch) -> None:
    seen: set[tuple[str, str]] = set()
    for item in asked.items:
        if item.name is None:
            refuse(Code.NAME_REQUIRED, "a `name` in every item; a batch numbers nothing")
        if (item.project, item.name) in seen:
            refuse(Code.NAME_TWICE, f"each name once; `{item.project}/{item.name}` comes twice")
        seen.add((item.project, item.name))


def _claim(asked: WorkspaceClaim) -> None:
    if not asked.command and not asked.external:
        refuse(Code.COMMAND_REQUIRED, "a `command` with at least the program to run")
    if asked.command and asked.external:
        refuse(Code.EXTERNAL_WORKSPACE, "either a `command` or `external`, not both")


def _sections(kind: WorkloadKind, given: frozenset[str]) -> None:
    """Refuse sections that the kind does not have, and the lack of one that it needs."""
    missing = sorted(set(KINDS[kind].required) - given)
    if missing:
        refuse(Code.SECTION_REQUIRED, f"`{missing[0]}`, without which a {kind} says nothing")
    foreign = sorted(given - KINDS[kind].sections)
    if foreign:
        refuse(Code.SECTION_OF_ANOTHER_KIND, f"no `{foreign[0]}`: a {kind} has none")


def _runs(schedule: ScheduleSpec | None, *, notebook: bool) -> None:
    """Refuse a schedule without what its runs need, or with what they do not have."""
    if schedule is None:
        return
    if schedule.runs == "notebook" and not notebook:
        refuse(Code.SECTION_REQUIRED, "`notebook`, which the schedule's runs need")
    if schedule.runs != "notebook" and notebook:
        refuse(Code.SECTION_OF_ANOTHER_KIND, f"no `notebook`: its runs are a {schedule.runs}")


def _routes(kind: str, routes: Sequence[Route]) -> None:
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


def _elastic(
    elastic: Elastic | None, rendezvous: Rendezvous | None, *, tasks: int, gpus: float
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


def _parameter(asked: Parameter) -> None:
    if asked.type == "categorical":
        if not asked.choices or asked.low is not None or asked.high is not None:
            refuse(Code.BAD_SEARCH_SPACE, "`choices` and nothing else for a categorical one")
        if len(set(asked.choices)) != len(asked.choices):
            refuse(Code.BAD_SEARCH_SPACE, "each of the `choices` once")
        return
    if asked.choices or asked.low is None or asked.high is None or asked.low > asked.high:
        refuse(Code.BAD_SEARCH_SPACE, "`low` and `high` with low <= high for a number")
    if asked.log and (asked.low <= 0 or asked.step is not None):
        refuse(Code.BAD_SEARCH_SPACE, "`low` above 0 and no `step` on a logarithmic scale")
    if asked.type == "int" and any(
        one is not None and one != int(one) for one in (asked.low, asked.high, asked.step)
    ):
        refuse(Code.BAD_SEARCH_SPACE, "whole numbers for an int")
    if asked.step is not None and (asked.high - asked.low) / asked.step > MOST_INT:
        refuse(Code.BAD_SEARCH_SPACE, f"at most {MOST_INT} steps from `low` to `high`")
    if asked.type == "int" and max(abs(asked.low), abs(asked.high)) > MOST_INT:
        refuse(Code.BAD_SEARCH_SPACE, f"an int between {-MOST_INT} and {MOST_INT}")


def _experiment(asked: ExperimentSpec) -> None:
    if asked.map and (asked.parameters or asked.trial_process == "fresh" or asked.pruner != "none"):
        refuse(
            Code.BAD_SEARCH_SPACE, "no `parameters`, `pruner` or `trial_process: fresh` with a map"
        )
    if asked.sampler != "grid":
        return
    if not asked.parameters:
        refuse(Code.BAD_SEARCH_SPACE, "`parameters`: a grid needs them declared")
    for name, one in asked.parameters.items():
        if one.type == "float" and one.step is None:
            refuse(Code.BAD_SEARCH_SPACE, f"a `step` for `{name}`: a grid counts its values")
    if math.prod(_points(one) for one in asked.parameters.values()) > MOST_POINTS:
        refuse(Code.BAD_SEARCH_SPACE, f"at most {MOST_POINTS:,} points in a grid")


def _points(parameter: Parameter) -> float:
    """Count the values of a parameter on a grid."""
    if parameter.type == "categorical":
        return len(parameter.choices)
    return ((parameter.high or 0.0) - (parameter.low or 0.0)) // (parameter.step or 1.0) + 1


def _inference(asked: InferenceSpec) -> None:
    if asked.min_replicas > asked.max_replicas:
        refuse(Code.BAD_RANGE, "`min_replicas` not above `max_replicas`")


def _pool(asked: DepartmentFields | ProjectFields) -> None:
    for amount in ("gpus", "cpu_millicores", "memory_bytes"):
        quota, limit = getattr(asked.quota, amount), getattr(asked.limit, amount)
        if quota is not None and limit is not None and limit < quota:
            refuse(
                Code.LIMIT_BELOW_QUOTA,
                f"`limit.{amount}` of at least `quota.{amount}`, which is {quota:g}",
            )


TOGETHER: Final[Mapping[type[msgspec.Struct], Callable[[Any], None]]] = {
    WorkloadCreate: _workload,
    Parameter: _parameter,
    ExperimentSpec: _experiment,
    InferenceSpec: _inference,
    DepartmentFields: _pool,
    ProjectFields: _pool,
    WorkloadBatch: _batch,
    WorkspaceClaim: _claim,
}
