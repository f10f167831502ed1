"""Workload policies as the API server evaluates them: rules by the places of fields in a manifest.

What holds for work of a kind in a project is merged as for requests; all that holds for one field
becomes one rule, with its sentences ready. An admission policy of the installation reads them as
its parameter and refuses early, in the same words. What it cannot see the scheduler checks when it
takes an object on (``workloads.namespaces.adoption``), where defaults are filled in too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from carrel_scheduler.ledger.resources import kinds, quantities
from carrel_scheduler.ledger.resources.wire import camel
from carrel_scheduler.policy.workload_policy import MAPPINGS, OF_ALL_WORK, ScopedPolicy, merge
from carrel_schema import constraints
from carrel_schema.governance.policies import Bound, EffectiveRule, ManifestRule
from carrel_schema.kinds import KINDS, WorkloadKind
from carrel_schema.wire import WorkloadCreate

ELSEWHERE: Final[Mapping[str, tuple[str, ...]]] = {
    "gpus": ("resources", "gpus"),
    "cpu_millicores": ("resources", "cpu"),
    "cpu_limit_millicores": ("resources", "cpuLimit"),
    "memory_bytes": ("resources", "memory"),
    "mig_profile": ("resources", "migProfile"),
    "gpu_memory_bytes": ("resources", "gpuMemory"),
    "gpu_devices": ("resources", "gpuDevices"),
}
"""Fields that a manifest says in another place."""
_MILLI: Final = frozenset({"cpu_millicores", "cpu_limit_millicores"})
_WILD: Final[Mapping[str, str]] = {"*": ".*", "?": "."}
_BYTES: Final = frozenset({"memory_bytes", "gpu_memory_bytes"})
_RUNS: Final[tuple[WorkloadKind, ...]] = ("notebook", "training")


def manifest_path(field: str) -> tuple[str, ...]:
    """The manifest's path of a request's field.

    It leads into the specification; what begins with ``labels`` is among the labels.
    """
    first, _, rest = field.partition(".")
    if first in ELSEWHERE:
        return ELSEWHERE[first]
    if not rest:
        return (camel(first),)
    return (first, rest) if first in MAPPINGS else (camel(first), camel(rest))


def manifest_rules(policies: Sequence[ScopedPolicy]) -> list[ManifestRule]:
    """The rules for the work of a project.

    Args:
        policies: those whose scope contains it, from the widest to the narrowest.
    """
    found: dict[bytes, ManifestRule] = {}
    for key, wanted in _kinds():
        for field, effective in merge(policies, wanted).items():
            rule = _rule(field, effective)
            if rule is not None:
                same = _text(rule)
                known = found.get(same, rule)
                found[same] = replace(known, kinds=[*known.kinds, key])
    return list(found.values())


def _kinds() -> Iterator[tuple[str, list[WorkloadKind]]]:
    """The name of a kind in the admission policy, and whose rules apply to it.

    Runs of a schedule have the rules of their own kind besides.
    """
    for kind, facts in KINDS.items():
        plural = kinds.WORK[kind].resource.plural
        if kind == "schedule":
            yield from ((f"{plural}/{runs}", [kind, runs]) for runs in _RUNS)
        elif not facts.part and kind != "workspace":
            yield plural, [kind]


def _rule(field: str, rule: EffectiveRule) -> ManifestRule | None:
    path = manifest_path(field)
    made = ManifestRule(
        field=".".join((*(() if path[0] == "labels" else ("spec",)), *path)),
        path=list(path),
        section=len(path) > 1 and path[0] not in {*MAPPINGS, *OF_ALL_WORK, "resources"},
        quantity=field in _MILLI | _BYTES,
    )
    if rule.required is not None and rule.default is None and rule.locked is None:
        made = replace(made, required_said=_said("given", rule.required))
    if rule.locked is not None:
        value = manifest_value(field, rule.locked.value)
        made = replace(made, locked=value, locked_said=_said(_shown(value), rule.locked))
    else:
        made = _bounded(made, field, rule)
    judged = (made.max_said, made.min_said, made.allowed_said, made.locked_said, made.required_said)
    return made if any(judged) else None


def _bounded(made: ManifestRule, field: str, rule: EffectiveRule) -> ManifestRule:
    """Add the bounds of a field that is not locked."""
    if rule.max is not None:
        value = manifest_value(field, rule.max.value)
        made = replace(
            made,
            max=value,
            max_said=_said(f"at most {_shown(value)}", rule.max),
            bounded=_no_bound(field) and rule.default is None,
        )
    if rule.min is not None:
        value = manifest_value(field, rule.min.value)
        made = replace(made, min=value, min_said=_said(f"at least {_shown(value)}", rule.min))
    if rule.allowed is not None:
        values = [manifest_value(field, one) for one in rule.allowed.value]
        listed = ", ".join(map(_shown, values))
        made = replace(
            made,
            allowed=[one for one in values if not isinstance(one, str)],
            patterns=[_pattern(one) for one in values if isinstance(one, str)],
            allowed_said=_said(f"one of {listed}" if values else "no value", rule.allowed),
        )
    return made


def manifest_value(field: str, value: Any) -> Any:
    """A request's value in the form of manifests."""
    if field in _MILLI:
        return quantities.of_milli(round(value))
    return quantities.of_bytes(round(value)) if field in _BYTES else value


def _no_bound(field: str) -> bool:
    """Whether a field that is left out has no bound."""
    first, _, rest = field.partition(".")
    known = constraints.fields(WorkloadCreate)
    if not rest:
        return known[first].default is None
    if first in MAPPINGS:
        return False
    return constraints.fields(constraints.bare(known[first].hint))[rest].default is None


def _pattern(text: str) -> str:
    """An expression of RE2 for a text with ``*``; sets of characters are left to the scheduler."""
    if "[" in text:
        return ""
    parts = (_WILD.get(one, re.escape(one)) for one in re.split(r"([*?])", text))
    return f"^(?s:{''.join(parts)})$"


def _said(right: str, bound: Bound) -> str:
    """The message of a rule: the right value and the bound, with its own message."""
    return f"it should be {right} ({bound.said_by})" + (
        f": {bound.message}" if bound.message else ""
    )


def _shown(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return _text(value).decode()


def _text(value: Any) -> bytes:
    return msgspec.json.encode(value, order="deterministic")
