"""Label and node selectors, taints and tolerations.

The core knows taints as ``key`` or ``key=value``. A taint ``key=value:effect`` is passed to it as
``key:effect=value``, always with the equals sign, so that a toleration of every value
(``key:effect``) and one of a single value are both exact. ``PreferNoSchedule`` keeps nobody away.

Taints that say that a node is not in order (``CLOSING``) close it instead: what waits for such a
node waits for it to come back; it does not lack a toleration.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.types import (
    NodeSelector,
    NodeTerm,
    Requirement,
    Selector,
    Taint,
    Toleration,
)

NAME: Final = "metadata.name"
"""The only field that nodes are selected by."""
_OPERATORS: Final = "In, NotIn, Exists, DoesNotExist, Gt or Lt"


def selects(selector: Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether a selector selects an object; none selects nothing, an empty one everything."""
    if selector is None:
        return False
    return all(labels.get(key) == value for key, value in selector.match_labels.items()) and all(
        holds(one, labels.get(one.key)) for one in selector.match_expressions
    )


def node_selected(selector: NodeSelector, labels: Mapping[str, str], name: str) -> bool:
    """Whether one of the terms holds for a node."""
    return any(term_holds(term, labels, name) for term in selector.node_selector_terms)


def term_holds(term: NodeTerm, labels: Mapping[str, str], name: str) -> bool:
    """Whether all of a term holds for a node; an empty term holds for none."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all_hold(term.match_expressions, labels) and all(
        holds(one, name if one.key == NAME else None) for one in term.match_fields
    )


def all_hold(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy all of these selectors."""
    return all(holds(one, labels.get(one.key)) for one in requirements)


def holds(requirement: Requirement, value: str | None) -> bool:
    """Whether a label with this value (``None``: without the label) satisfies a requirement.

    Raises:
        PodRefused: an operator that Kubernetes does not have.
    """
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compares(requirement, value)
    raise PodRefused("bad_operator", requirement.key, requirement.operator, _OPERATORS)


def _compares(requirement: Requirement, value: str | None) -> bool:
    """Whether the comparison of two whole numbers holds; with anything else it does not."""
    try:
        bound, found = int(requirement.values[0]), int(value or "")
    except (ValueError, IndexError):
        return False
    return found > bound if requirement.operator == "Gt" else found < bound


NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
HARD: Final = (NO_SCHEDULE, NO_EXECUTE)
PREFERS_NOT: Final = "PreferNoSchedule"
CLOSING: Final = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/unschedulable",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)
ALL: Final = "*"


def hard(taints: Iterable[Taint]) -> tuple[Taint, ...]:
    """The taints that exclude pods unless they are tolerated."""
    return tuple(t for t in taints if t.effect in HARD and t.key not in CLOSING)


def core_taint(taint: Taint) -> str:
    """A taint in the form of the core."""
    return f"{taint.key}:{taint.effect}={taint.value}"


def closed(taints: Iterable[Taint]) -> bool:
    """Whether a taint marks a node that is not ready."""
    return any(taint.key in CLOSING and taint.effect in HARD for taint in taints)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Whether a toleration matches a taint, by the rules of Kubernetes."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    if toleration.operator in ("Gt", "Lt"):
        return _value_tolerated(toleration, taint)
    return bool(toleration.key) and toleration.value == taint.value


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether any of these tolerations matches the taint."""
    return any(tolerates(toleration, taint) for toleration in tolerations)


def tolerations_of(
    tolerations: Iterable[Toleration], present: Iterable[Taint] = ()
) -> frozenset[str]:
    """The tolerations in the form of the core.

    Args:
        tolerations: of a pod.
        present: the taints that nodes have: a toleration without a key for one effect only, or
            one that compares numbers, is spelled out over them.
    """
    found: set[str] = set()
    for toleration in tolerations:
        effects = (toleration.effect,) if toleration.effect else HARD
        if toleration.operator == "Exists" and toleration.key:
            found.update(f"{toleration.key}:{effect}" for effect in effects)
        elif toleration.operator == "Exists" and not toleration.effect:
            return frozenset({ALL})
        elif spelled_out(toleration):
            found.update(core_taint(taint) for taint in present if tolerates(toleration, taint))
        elif toleration.key:
            found.update(f"{toleration.key}:{effect}={toleration.value}" for effect in effects)
    return frozenset(found)


def spelled_out(toleration: Toleration) -> bool:
    """Whether the tolerated taints have to be listed one by one."""
    if toleration.operator in ("Gt", "Lt"):
        return True
    return toleration.operator == "Exists" and not toleration.key and bool(toleration.effect)


def _value_tolerated(toleration: Toleration, taint: Taint) -> bool:
    """``Gt``: the taint's number is greater than the toleration's; ``Lt``: less."""
    try:
        theirs, ours = int(taint.value), int(toleration.value)
    except ValueError:
        return False
    return theirs > ours if toleration.operator == "Gt" else theirs < ours
