"""Workload policies decided: merged along the scopes, applied to a request, checked against work.

Pure: policies come in as they are stored, from the widest scope to the narrowest; what is refused
comes out as violations, each with the field, the value, the rule and who made it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import msgspec

from carrel_schema import constraints
from carrel_schema.governance.policies import Bound, EffectiveRule, FieldRule, PolicyFields
from carrel_schema.kinds import KINDS, WorkloadKind
from carrel_schema.scopes import Scope
from carrel_schema.wire import WorkloadCreate

MAPPINGS: Final = frozenset({"environment", "labels"})
"""Fields whose entries have rules of their own, as ``environment.NAME``."""
OF_ALL_WORK: Final = frozenset({"assets"})
"""Sections that work of every kind may have: rules about them count also where there is none."""
UNRULED: Final = frozenset(
    {"name", "name_prefix", "project", "kind", "template", "user", "server_name", "hold_for_claim"}
    | {"external", "given", "files", "secret_environment", "code"}
)
"""Fields that say which work it is or are read by Carrel's own parts: no rule is about them."""
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {}, ())


@dataclass(frozen=True, slots=True)
class ScopedPolicy:
    """A policy with its name and scope."""

    name: str
    scope: Scope
    fields: PolicyFields


@dataclass(frozen=True, slots=True)
class Violation:
    """A field that violates a rule; ``right`` has the accepted values."""

    field: str
    value: Any
    right: str
    bound: Bound

    @property
    def sentence(self) -> str:
        """The whole refusal."""
        said = "is not given" if self.value in _EMPTY else f"is {_shown(self.value)}"
        message = f": {self.bound.message}" if self.bound.message else ""
        return f"`{self.field}` {said}; it should be {self.expected}{message}"

    @property
    def expected(self) -> str:
        """The accepted values, and the policy that sets them."""
        return f"{self.right} ({self.bound.said_by})"


def merge(
    policies: Iterable[ScopedPolicy], kinds: Iterable[WorkloadKind]
) -> dict[str, EffectiveRule]:
    """The combined rules for work of any of these kinds.

    Args:
        policies: from the widest scope to the narrowest.
        kinds: that of the work and, for a schedule, that of what it runs.
    """
    wanted, merged = frozenset(kinds), dict[str, EffectiveRule]()
    for policy in policies:
        if policy.fields.kinds and wanted.isdisjoint(policy.fields.kinds):
            continue
        for path, rule in policy.fields.rules.items():
            merged[path] = _narrowed(merged.get(path, EffectiveRule()), policy, rule)
    return merged


def _narrowed(before: EffectiveRule, policy: ScopedPolicy, rule: FieldRule) -> EffectiveRule:
    def bound(value: Any) -> Bound:
        return Bound(value=value, policy=policy.name, scope=str(policy.scope), message=rule.message)

    found = before
    if rule.default is not None and before.locked is None:
        found = msgspec.structs.replace(found, default=bound(rule.default))
    if rule.locked and before.locked is None:
        found = msgspec.structs.replace(found, locked=bound(rule.default))
    if rule.min is not None and (before.min is None or rule.min > before.min.value):
        found = msgspec.structs.replace(found, min=bound(rule.min))
    if rule.max is not None and (before.max is None or rule.max < before.max.value):
        found = msgspec.structs.replace(found, max=bound(rule.max))
    if rule.required and before.required is None:
        found = msgspec.structs.replace(found, required=bound(value=True))
    if rule.allowed:
        allowed = rule.allowed
        if before.allowed is not None:
            allowed = [one for one in allowed if _matches(one, before.allowed.value)]
        found = msgspec.structs.replace(found, allowed=bound(allowed))
    return found


def conflicts(policy: ScopedPolicy, wider: Sequence[ScopedPolicy]) -> list[tuple[str, Any, str]]:
    """Rules of a policy that wider policies refuse: path with the part, value, allowed values.

    A rule of a narrower scope may tighten what a wider one says, never loosen it.
    """
    found: dict[str, tuple[str, Any, str]] = {}
    for kind in policy.fields.kinds or KINDS:
        above = merge(wider, [kind])
        for path, rule in policy.fields.rules.items():
            if path in above:
                found |= {one[0]: one for one in _loosened(path, rule, above[path])}
    return list(found.values())


def _loosened(path: str, rule: FieldRule, over: EffectiveRule) -> Iterable[tuple[str, Any, str]]:
    for value, part in ((rule.min, "min"), (rule.max, "max"), (rule.default, "default")):
        broken = () if value is None else tuple(_broken(path, value, over))
        if broken:
            yield f"{path}.{part}", value, broken[0].expected
    if over.allowed is not None:
        foreign = [one for one in rule.allowed if not _matches(one, over.allowed.value)]
        if foreign:
            right = f"{_list(over.allowed.value)} ({over.allowed.said_by})"
            yield f"{path}.allowed", foreign[0], right


def check_rule(path: str, rule: FieldRule) -> tuple[str, str] | None:
    """The mistake in a rule by itself: the part of it, and what would be right."""
    hint = hint_of(path)
    if hint is None:
        return "", "the path of a field of a request, see the list of options"
    numeric = hint in (int, float)
    if not numeric and (rule.min is not None or rule.max is not None):
        part = "min" if rule.min is not None else "max"
        return part, f"no `min` or `max`: `{path}` is no number"
    if rule.min is not None and rule.max is not None and rule.min > rule.max:
        return "min", f"at most its `max` of {_shown(rule.max)}"
    if rule.locked and rule.default is None:
        return "default", "the value that the field is locked to"
    if rule == FieldRule(message=rule.message):
        return "", "at least one of `default`, `min`, `max`, `required`, `locked`, `allowed`"
    if rule.default is not None:
        broken = [one for one in _broken(path, rule.default, _alone(rule)) if one.field == path]
        if broken:
            return "default", f"a value that the rule itself takes: {broken[0].right}"
    return None


def _alone(rule: FieldRule) -> EffectiveRule:
    scoped = ScopedPolicy("", Scope(), PolicyFields(rules={}))
    return _narrowed(EffectiveRule(), scoped, rule)


def hint_of(path: str) -> Any:
    """The type of the value at a path of a request; ``None`` where rules are about none."""
    first, _, rest = path.partition(".")
    field = constraints.fields(WorkloadCreate).get(first)
    if field is None or first in UNRULED or constraints.Mark.INTERNAL in field.marks:
        return None
    hint = constraints.bare(field.hint)
    if not rest:
        return None if _is_section(hint) else hint
    if first in MAPPINGS:
        return str
    inside = constraints.fields(hint).get(rest) if _is_section(hint) else None
    if inside is None or constraints.Mark.INTERNAL in inside.marks:
        return None
    return constraints.bare(inside.hint)


def _is_section(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, msgspec.Struct)


def apply(rules: Mapping[str, EffectiveRule], body: WorkloadCreate) -> WorkloadCreate:
    """The request with the policies' defaults for fields that it leaves out."""
    for path, rule in rules.items():
        default = rule.locked or rule.default
        if default is not None and _has_place(path, body) and not _is_given(path, body):
            body = _with(path, default.value, body)
    return body


def violations(
    rules: Mapping[str, EffectiveRule], work: msgspec.Struct, *, requested: bool = True
) -> list[Violation]:
    """The violations of the rules by a request, or by work as it is stored.

    Args:
        rules: merged, by path.
        work: a ``WorkloadCreate`` after ``apply``, or what an answer says of stored work.
        requested: whether it is a request; of stored work all fields count as given.
    """
    found: list[Violation] = []
    for path, rule in rules.items():
        if not _has_place(path, work):
            continue
        value = _value_at(path, work)
        if rule.required is not None and requested:
            unsaid = not _is_given(path, work) or value in _EMPTY
            found += [Violation(path, None, "given", rule.required)] if unsaid else []
            if unsaid:
                continue
        found += _broken(path, value, rule)
    return found


def _broken(path: str, value: Any, rule: EffectiveRule) -> Iterable[Violation]:
    if rule.locked is not None:
        if value != rule.locked.value:
            yield Violation(path, value, _shown(rule.locked.value), rule.locked)
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if rule.max is not None and ((is_number and value > rule.max.value) or value is None):
        yield Violation(path, value, f"at most {_shown(rule.max.value)}", rule.max)
    if rule.min is not None and is_number and value < rule.min.value:
        yield Violation(path, value, f"at least {_shown(rule.min.value)}", rule.min)
    if rule.allowed is not None:
        items = value if isinstance(value, list | tuple) else [value]
        for one in items:
            if one not in _EMPTY and not _matches(one, rule.allowed.value):
                yield Violation(path, one, _list(rule.allowed.value), rule.allowed)


def _matches(value: Any, allowed: Sequence[Any]) -> bool:
    text = value if isinstance(value, str) else str(getattr(value, "source", ""))
    return value in allowed or any(
        isinstance(one, str) and text and fnmatchcase(text, one) for one in allowed
    )


def _has_place(path: str, work: msgspec.Struct) -> bool:
    first, _, rest = path.partition(".")
    return not rest or first in MAPPINGS | OF_ALL_WORK or getattr(work, first, None) is not None


def _value_at(path: str, work: msgspec.Struct) -> Any:
    first, _, rest = path.partition(".")
    value = getattr(work, first, None)
    if not rest:
        return value
    return value.get(rest) if isinstance(value, Mapping) else getattr(value, rest, None)


def _is_given(path: str, work: msgspec.Struct) -> bool:
    first, _, rest = path.partition(".")
    value = getattr(work, first, None)
    if isinstance(value, Mapping) and rest:
        return rest in value
    if not rest:
        given: frozenset[str] = getattr(work, "given", frozenset())
        return first in given
    if not isinstance(value, msgspec.Struct):
        return False
    field = constraints.fields(type(value)).get(rest)
    return field is not None and getattr(value, rest) != field.default


def _with(path: str, value: Any, body: WorkloadCreate) -> WorkloadCreate:
    first, _, rest = path.partition(".")
    before = getattr(body, first)
    hint = constraints.fields(WorkloadCreate)[first].hint
    if isinstance(before, Mapping) and rest:
        value = {**before, rest: str(value)}
    elif rest:
        section: type[msgspec.Struct] = constraints.bare(hint)
        hint = constraints.fields(section)[rest].hint
        known = section() if before is None else before
        value = msgspec.structs.replace(known, **{rest: msgspec.convert(value, hint)})
    else:
        value = msgspec.convert(value, hint)
    return msgspec.structs.replace(body, **{first: value}, given=body.given | {first})


def _shown(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return msgspec.json.encode(value).decode()


def _list(values: Sequence[Any]) -> str:
    return "one of " + ", ".join(map(_shown, values)) if values else "no value"
