"""The request that a workload was made of, to be submitted again, with changes or as it was.

What the service filled in by itself (the program of a notebook job, the port of an endpoint) is
left out, so it is filled in anew. Secrets and files are those of the workload; they never leave
the service.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from pydantic import ValidationError

from carrel_scheduler.api import convert, problems, refusals
from carrel_scheduler.api.models import validators
from carrel_scheduler.api.principals.jobs import PARENT_LABEL
from carrel_scheduler.api.problems import Code
from carrel_scheduler.workloads.launch import builtin_programs
from carrel_schema import constraints
from carrel_schema.constraints import Mark
from carrel_schema.kinds import PARTS
from carrel_schema.objects import Workload, WorkloadSpec
from carrel_schema.wire import WorkloadCreate

_NUMBER: Final = re.compile(r"-\d+$")
_LONGEST_PREFIX: Final = 50
_OF_OTHERS: Final = frozenset(
    {"name", "name_prefix", "project", "files", "secret_environment", "labels", "user"}
    | {"server_name", "hold_for_claim", "external", "port", "continue_from"}
)
"""Fields that are not those of the specification, or that are of one workload alone."""


def request_again(
    workload: Workload, secrets: Mapping[str, str], changes: Mapping[str, Any]
) -> WorkloadCreate:
    """The request; ``changes`` are fields of it that are to be otherwise, ``null`` its default.

    Fields of a section (``experiment``, ``inference``, ...) are changed one by one. Without a
    ``name`` among them it is numbered behind the workload's. Raises ``Conflicting`` for
    what cannot be run again, ``InvalidRequest`` for changes that are refused.
    """
    if workload.spec.kind == "workspace" or workload.spec.kind in PARTS:
        raise problems.Conflicting(
            Code.CANNOT_RERUN,
            f"A {workload.spec.kind} is not run again: start the workspace from the Hub's page,"
            " or run what a trial or replica is part of",
        )
    prefix = _NUMBER.sub("", workload.meta.name)[:_LONGEST_PREFIX].rstrip("-")
    body: dict[str, Any] = {
        **_asked(workload),
        "project": workload.meta.project,
        "files": workload.spec.files,
        "labels": {k: v for k, v in workload.meta.labels.items() if k != PARENT_LABEL},
        "secret_environment": dict(secrets),
    }
    if "name" not in changes and "name_prefix" not in changes:
        body["name_prefix"] = prefix
    for name, value in changes.items():
        section = isinstance(getattr(workload.spec, name, None), msgspec.Struct)
        whole = {**body.get(name, {}), **value} if section and isinstance(value, dict) else value
        body[name] = whole
        if value is None:
            del body[name]
    try:
        return validators.read(WorkloadCreate, msgspec.json.encode(body))
    except ValidationError as error:
        raise refusals.from_validation(error, body) from error


def _asked(workload: Workload) -> dict[str, Any]:
    """The fields of the specification that a request has, where they are not at their default."""
    spec = workload.spec
    shown: dict[str, Any] = msgspec.to_builtins(convert.spec_out(spec))
    fields = constraints.fields(WorkloadCreate)
    found = {
        name: value
        for name, value in shown.items()
        if name in fields and name not in _OF_OTHERS and value is not None
    }
    for name in list(found):
        section = getattr(spec, name, None)
        if isinstance(section, msgspec.Struct):
            found[name] = {key: found[name][key] for key in _names(type(section))}
    if spec.resources.gpu_memory_mib:
        del found["gpus"]  # what this memory was a share of then
    runs = spec.kind if spec.schedule is None else spec.schedule.runs
    if spec.command == builtin_programs.command_for(runs):
        del found["command"]
    if spec.routes == builtin_programs.routes_for(runs, spec.tensorboard):
        found.pop("routes", None)
    usual = builtin_programs.BACKOFF_LIMIT.get(runs, WorkloadSpec().backoff_limit)
    if spec.retries is not None and spec.retries.application == spec.backoff_limit > 0:
        found["retries"]["application"] = None  # follows from the backoff limit, also from another
    elif spec.backoff_limit == usual:
        del found["backoff_limit"]  # one that is asked for would be one of the program's errors
    return found


def _names(struct: type[msgspec.Struct]) -> Iterable[str]:
    """The requested fields."""
    found = constraints.fields(struct).values()
    return [one.name for one in found if Mark.INTERNAL not in one.marks]
