"""Defaults of policies in work that came as a manifest, and fields that policies want to be said.

A request has its defaults before it becomes work; a manifest is work already when it is read, so
what its author left out is filled in there.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.policy.manifest_rules import manifest_path
from carrel_scheduler.policy.workload_policy import Violation
from carrel_schema import constraints
from carrel_schema.governance.policies import EffectiveRule
from carrel_schema.objects import Resources, Workload, WorkloadSpec
from carrel_schema.wire import Volume

Given = Mapping[str, Any]
"""A specification as its author wrote it."""
_AMOUNTS: Final[Mapping[str, Callable[[Resources, Any], Resources]]] = {
    "gpus": lambda had, value: replace(had, gpu_milli=round(value * MILLI)),
    "cpu_millicores": lambda had, value: replace(had, cpu_milli=round(value)),
    "cpu_limit_millicores": lambda had, value: replace(had, cpu_limit_milli=round(value)),
    "memory_bytes": lambda had, value: replace(had, memory_bytes=round(value)),
    "mig_profile": lambda had, value: replace(had, mig_profile=str(value)),
    "gpu_devices": lambda had, value: replace(had, gpu_devices=round(value)),
}


def fill_defaults(workload: Workload, given: Given, rules: Mapping[str, EffectiveRule]) -> Given:
    """Set what its author left open and rules have a default for; returns what is given then."""
    filled: dict[str, Any] = dict(given)
    for field, rule in rules.items():
        default, path = rule.locked or rule.default, manifest_path(field)
        if default is None or not path or _says(path, filled, workload):
            continue
        if _set(workload, field, default.value) and path[0] != "labels":
            filled = _with(filled, path, default.value)
    return filled


def unsaid(workload: Workload, given: Given, rules: Mapping[str, EffectiveRule]) -> list[Violation]:
    """What rules want to be said and its author left out."""
    return [
        Violation(field, None, "given", rule.required)
        for field, rule in rules.items()
        if rule.required is not None
        and (path := manifest_path(field))
        and _has_place(field, workload)
        and not _says(path, given, workload)
    ]


def _says(path: tuple[str, ...], given: Given, workload: Workload) -> bool:
    value: Any = {"labels": workload.meta.labels} if path[0] == "labels" else given
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value not in (None, "", [], {})


def _has_place(field: str, workload: Workload) -> bool:
    first, _, rest = field.partition(".")
    return not rest or first == "labels" or getattr(workload.spec, first) is not None


def _with(given: Given, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    if len(path) == 1:
        return {**given, path[0]: value}
    return {**given, path[0]: {**(given.get(path[0]) or {}), path[1]: value}}


def _set(workload: Workload, field: str, value: Any) -> bool:
    """Set a field of a request in the work that it would have become; whether there is one."""
    spec, (first, _, rest) = workload.spec, field.partition(".")
    if first in _AMOUNTS:
        spec.resources = _AMOUNTS[first](spec.resources, value)
    elif first == "labels":
        workload.meta.labels = {**workload.meta.labels, rest: str(value)}
    elif first == "volumes":
        volumes = msgspec.convert(value, list[Volume])
        spec.volumes = [(one.source, one.destination) for one in volumes]
        spec.read_only = [one.source for one in volumes if one.read_only]
    elif not rest:
        setattr(spec, first, msgspec.convert(value, constraints.fields(WorkloadSpec)[first].hint))
    elif isinstance(before := getattr(spec, first), dict):
        setattr(spec, first, {**before, rest: str(value)})
    elif before is not None:
        section: type[msgspec.Struct] = type(before)
        hint = constraints.fields(section)[rest].hint
        setattr(spec, first, replace(before, **{rest: msgspec.convert(value, hint)}))
    return not rest or getattr(spec, first, True) is not None
