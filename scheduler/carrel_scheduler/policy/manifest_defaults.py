"""Assets and defaults of policies in work that came as a manifest, and what policies want said.

A request has its defaults before it becomes work; a manifest is work already when it is read, so
what its author left out is filled in there.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.ledger.scoped_records import ScopedRecord
from carrel_scheduler.policy.assets import INSTEAD, UsableAssets, named_by_policies
from carrel_scheduler.policy.manifest_rules import manifest_path
from carrel_scheduler.policy.workload_policy import MAPPINGS, OF_ALL_WORK, Violation
from carrel_schema import constraints
from carrel_schema.governance.policies import EffectiveRule
from carrel_schema.objects import Resources, Workload, WorkloadSpec
from carrel_schema.scopes import Scope
from carrel_schema.wire import Volume

Given = Mapping[str, Any]
"""A specification as its author wrote it."""
_AMOUNTS: Final[Mapping[str, Callable[[Resources, Any], Resources]]] = {
    "gpus": lambda had, value: replace(had, gpu_milli=round(value * MILLI)),
    "cpu_millicores": lambda had, value: replace(had, cpu_milli=round(value)),
    "cpu_limit_millicores": lambda had, value: replace(had, cpu_limit_milli=round(value)),
    "memory_bytes": lambda had, value: replace(had, memory_bytes=round(value)),
    "mig_profile": lambda had, value: replace(had, mig_profile=str(value)),
    "gpu_memory_bytes": lambda had, value: replace(had, gpu_memory_mib=-(-round(value) // MIB)),
    "gpu_devices": lambda had, value: replace(had, gpu_devices=round(value)),
}


def fill_defaults(workload: Workload, given: Given, rules: Mapping[str, EffectiveRule]) -> Given:
    """Set what its author left open and rules have a default for; returns what is given then."""
    filled = given
    for field, rule in rules.items():
        default = rule.locked or rule.default
        if default is not None:
            filled = _filled(workload, filled, field, default.value)
    return filled


def fill_assets(
    workload: Workload,
    given: Given,
    records: Sequence[ScopedRecord],
    scopes: Sequence[Scope],
    rules: Mapping[str, EffectiveRule],
) -> Given:
    """Set the fields of the assets that the author or a policy names; returns what is set.

    Args:
        workload: of a manifest.
        given: as its author wrote it.
        records: all assets.
        scopes: those that contain the work, from the widest to the narrowest.
        rules: merged policies, whose defaults may name assets.

    Raises ``AssetRefused`` for an asset that is not there for this work.
    """
    own = {} if workload.spec.assets is None else msgspec.to_builtins(workload.spec.assets)
    bounds = named_by_policies(rules, [{"assets": own}])
    there = UsableAssets(records, scopes, bounds)
    for part, bound in bounds.items():
        given = _filled(workload, given, f"assets.{part}", bound.value)
    if workload.spec.assets is None:
        return given
    named = msgspec.to_builtins(workload.spec.assets)
    asked = {field for field in INSTEAD if _says(manifest_path(field), given, workload)}
    for field, value in there.fields(named).items():
        if field in INSTEAD and asked:
            continue
        entries = value.items() if field in MAPPINGS else ()
        for path, one in [(f"{field}.{name}", one) for name, one in entries] or [(field, value)]:
            given = _filled(workload, given, path, one)
    return _with_data(workload, given, there.with_data(_data_of(workload.spec, named)))


def _data_of(spec: WorkloadSpec, named: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that data sources add to, in the form of a request."""
    volumes = [
        {"source": source, "destination": where, "read_only": source in spec.read_only}
        for source, where in spec.volumes
    ]
    repositories = msgspec.to_builtins(spec.repositories)
    environment = dict(spec.environment)
    return {
        "assets": named,
        "volumes": volumes,
        "repositories": repositories,
        "environment": environment,
    }


def _with_data(workload: Workload, given: Given, body: Mapping[str, Any]) -> Given:
    before = _data_of(workload.spec, {})
    for field in ("volumes", "repositories", "environment"):
        if body[field] != before[field]:
            _set(workload, field, body[field])
            given = _with(given, manifest_path(field), body[field])
    return given


def _filled(workload: Workload, given: Given, field: str, value: Any) -> Given:
    """Set a field that the author left out; returns the fields that are set then."""
    path = manifest_path(field)
    if _says(path, given, workload) or not _set(workload, field, value) or path[0] == "labels":
        return given
    return _with(given, path, value)


def unsaid(workload: Workload, given: Given, rules: Mapping[str, EffectiveRule]) -> list[Violation]:
    """The fields that rules require and the author left out."""
    return [
        Violation(field, None, "given", rule.required)
        for field, rule in rules.items()
        if rule.required is not None
        and _has_place(field, workload)
        and not _says(manifest_path(field), given, workload)
    ]


def _says(path: tuple[str, ...], given: Given, workload: Workload) -> bool:
    value: Any = {"labels": workload.meta.labels} if path[0] == "labels" else given
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value not in (None, "", [], {})


def _has_place(field: str, workload: Workload) -> bool:
    first, _, rest = field.partition(".")
    anywhere = first == "labels" or first in OF_ALL_WORK
    return not rest or anywhere or getattr(workload.spec, first) is not None


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
    elif before is not None or first in OF_ALL_WORK:
        section = constraints.bare(constraints.fields(WorkloadSpec)[first].hint)
        hint = constraints.fields(section)[rest].hint
        known = section() if before is None else before
        setattr(spec, first, replace(known, **{rest: msgspec.convert(value, hint)}))
    return not rest or getattr(spec, first, True) is not None
