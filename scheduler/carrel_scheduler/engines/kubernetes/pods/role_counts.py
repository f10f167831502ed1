"""The numbers of pods of each role, read from an owner by the rules of its kind.

Owners are objects of others: whatever does not have the expected shape says nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from carrel_scheduler.engines.kubernetes.pods.grouping_rules import (
    GroupingRule,
    OwnerFieldCondition,
    RoleLayout,
    Roles,
)
from carrel_scheduler.engines.kubernetes.pods.labels import MOST_PODS

EVERY: Final = "*"


@dataclass(frozen=True, slots=True)
class RoleCount:
    """A role of an owner's pods.

    Attributes:
        least: so many start together.
        apart: they start by themselves, after others ran.
    """

    name: str
    least: int
    apart: bool = False


def roles_of(
    rule: GroupingRule, owner: Mapping[str, Any], total: int | None = None
) -> list[RoleCount]:
    """The roles of an owner that have any pods.

    Args:
        rule: of the owner's kind.
        owner: the object.
        total: so many pods are enough over all roles, as somebody said beside the owner.
    """
    apart = {role for role, when in rule.apart if condition_holds(when, owner)}
    if rule.exclusive and rule.exclusive.applies(value_at(owner, "metadata.annotations")):
        apart.add(rule.others)
    found = [role for roles in rule.roles for role in _roles(roles, owner)]
    least_of = {role: count for role, path in rule.least_of if (count := number(owner, path))}
    found = [
        replace(
            role,
            least=min(role.least, least_of.get(role.name, role.least)),
            apart=role.apart or EVERY in apart or role.name in apart,
        )
        for role in found
    ]
    if total is None:
        total = next((count for path in rule.least if (count := number(owner, path))), None)
    return found if total is None else _reduced(found, total)


def condition_holds(when: OwnerFieldCondition, owner: Mapping[str, Any]) -> bool:
    """Whether the condition is true for the owner."""
    found = value_at(owner, when.path)
    if when.same_as:
        return found is not None and found == value_at(owner, when.same_as)
    return bool(found == when.value)


def value_at(owner: object, path: str) -> Any:
    """The value at a path, keys with dots between; ``None`` where there is none."""
    for key in path.split("."):
        if not isinstance(owner, Mapping):
            return None
        owner = owner.get(key)
    return owner


def number(owner: object, path: str) -> int | None:
    """The number at a path; ``None`` where there is no valid number of pods."""
    found = value_at(owner, path)
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        return None
    return min(found, MOST_PODS)


def _roles(roles: Roles, owner: Mapping[str, Any]) -> Iterator[RoleCount]:
    elastic = bool(roles.elastic) and value_at(owner, roles.elastic) is True
    for name, entry in _entries(roles, value_at(owner, roles.path)):
        if (roles.skip and value_at(entry, roles.skip) is True) or _one_by_one(roles, entry, owner):
            continue
        least = max(0, _count(roles, entry, elastic=elastic) - roles.less)
        if least:
            yield RoleCount(name, least, bool(roles.after and value_at(entry, roles.after)))


def _one_by_one(roles: Roles, entry: object, owner: Mapping[str, Any]) -> bool:
    """Whether the pods of an entry start each by itself."""
    if roles.exclusive is None:
        return False
    own = value_at(entry, "template.metadata.annotations")
    return roles.exclusive.applies(own, value_at(owner, "metadata.annotations"))


def _entries(roles: Roles, found: object) -> Iterator[tuple[str, object]]:
    if roles.shape is RoleLayout.ONE:
        yield roles.name, found
    elif roles.shape is RoleLayout.MAP and isinstance(found, Mapping):
        for name, entry in found.items():
            yield str(name).lower(), entry
    elif (
        roles.shape is RoleLayout.LIST
        and isinstance(found, Sequence)
        and not isinstance(found, str)
    ):
        for entry in found:
            yield str(value_at(entry, roles.name) or "").lower(), entry


def _count(roles: Roles, entry: object, *, elastic: bool) -> int:
    counts = [count if (count := number(entry, path)) is not None else 1 for path in roles.counts]
    least = number(entry, roles.least) if roles.least else None
    if least or (elastic and least is not None):
        counts[0] = least
    if roles.most and (most := number(entry, roles.most)) is not None:
        counts[-1] = min(counts[-1], most)
    return min(MOST_PODS, prod(counts))


def _reduced(roles: list[RoleCount], total: int) -> list[RoleCount]:
    """Roles reduced to ``total`` pods: fewer of the most numerous roles, then of all."""
    excess = sum(role.least for role in roles) - total
    left = {role.name: role.least for role in roles}
    for kept in (1, 0):
        for name in sorted(left, key=lambda name: (-left[name], name)):
            cut = max(0, min(excess, left[name] - kept))
            left[name] -= cut
            excess -= cut
    return [replace(role, least=left[role.name]) for role in roles]
