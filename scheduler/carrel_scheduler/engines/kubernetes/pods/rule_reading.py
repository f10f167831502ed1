"""What an owner says, read by the rule of its kind: which roles there are, and how many of each.

Owners are objects of others: whatever does not have the expected shape says nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

from carrel_scheduler.engines.kubernetes.pods.grouping_rules import Roles, Rule, Shape, When
from carrel_scheduler.engines.kubernetes.pods.standing import MOST_PODS

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


def roles_of(rule: Rule, owner: Mapping[str, Any], total: int | None = None) -> list[RoleCount]:
    """The roles of an owner's pods that have any.

    Args:
        rule: of the owner's kind.
        owner: the object.
        total: so many pods are enough over all roles, as somebody said beside the owner.
    """
    apart = {role for role, when in rule.apart if holds(when, owner)}
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


def holds(when: When, owner: Mapping[str, Any]) -> bool:
    """Whether the owner says so."""
    found = at(owner, when.path)
    if when.same_as:
        return found is not None and found == at(owner, when.same_as)
    return bool(found == when.value)


def at(owner: object, path: str) -> Any:
    """What stands at a path; ``None`` where nothing does."""
    for key in path.split("."):
        if not isinstance(owner, Mapping):
            return None
        owner = owner.get(key)
    return owner


def number(owner: object, path: str) -> int | None:
    """The number at a path; ``None`` where there is none that counts pods."""
    found = at(owner, path)
    if isinstance(found, bool) or not isinstance(found, int) or found < 0:
        return None
    return min(found, MOST_PODS)


def _roles(roles: Roles, owner: Mapping[str, Any]) -> Iterator[RoleCount]:
    for name, entry in _entries(roles, at(owner, roles.path)):
        if roles.skip and at(entry, roles.skip) is True:
            continue
        least = max(0, _count(roles, entry) - roles.less)
        if least:
            yield RoleCount(name, least, bool(roles.after and at(entry, roles.after)))


def _entries(roles: Roles, found: object) -> Iterator[tuple[str, object]]:
    if roles.shape is Shape.ONE:
        yield roles.name, found
    elif roles.shape is Shape.MAP and isinstance(found, Mapping):
        for name, entry in found.items():
            yield str(name).lower(), entry
    elif roles.shape is Shape.LIST and isinstance(found, Sequence) and not isinstance(found, str):
        for entry in found:
            yield str(at(entry, roles.name) or "").lower(), entry


def _count(roles: Roles, entry: object) -> int:
    counts = [count if (count := number(entry, path)) is not None else 1 for path in roles.counts]
    if roles.least and (least := number(entry, roles.least)):
        counts[0] = least
    if roles.most and (most := number(entry, roles.most)) is not None:
        counts[-1] = min(counts[-1], most)
    return min(MOST_PODS, prod(counts))


def _reduced(roles: list[RoleCount], total: int) -> list[RoleCount]:
    """So many pods are enough: fewer of the most numerous roles, then of all."""
    excess = sum(role.least for role in roles) - total
    left = {role.name: role.least for role in roles}
    for kept in (1, 0):
        for name in sorted(left, key=lambda name: (-left[name], name)):
            cut = max(0, min(excess, left[name] - kept))
            left[name] -= cut
            excess -= cut
    return [replace(role, least=left[role.name]) for role in roles]
