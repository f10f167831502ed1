"""Selectors of Kubernetes: of objects by their labels, and of nodes by labels and names."""

from collections.abc import Iterable, Mapping
from typing import Final

from carrel_scheduler.engines.kubernetes.pods.errors import PodRefused
from carrel_scheduler.engines.kubernetes.pods.types import (
    NodeSelector,
    NodeTerm,
    Requirement,
    Selector,
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
    """Whether labels satisfy all of these."""
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
    """Both are whole numbers; anything else does not hold."""
    try:
        bound, found = int(requirement.values[0]), int(value or "")
    except (ValueError, IndexError):
        return False
    return found > bound if requirement.operator == "Gt" else found < bound
