"""Groups of nodes as they are defined: which nodes are in one, and whose work may go there.

A group selects nodes by all of its labels, or by their names. It may be kept for projects, for
departments, and for training or for interactive work.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from carrel_schema.groups import NodeGroupSpec


@dataclass(frozen=True, slots=True)
class NodeGroupsKnown:
    """The groups that are defined, by name; those that were known and are not here are gone."""

    groups: Mapping[str, NodeGroupSpec]


def selects(group: NodeGroupSpec, node: str, labels: Mapping[str, str]) -> bool:
    """Whether a node belongs to the group."""
    if node in group.node_names:
        return True
    if not group.match_labels:
        return False
    return all(labels.get(key) == value for key, value in group.match_labels.items())


def selecting(groups: Mapping[str, NodeGroupSpec], node: str, labels: Mapping[str, str]) -> str:
    """The first group, by name, to which a node belongs; empty without one."""
    return next((name for name in sorted(groups) if selects(groups[name], node, labels)), "")


def is_open(group: NodeGroupSpec, project: str, department: str, *, interactive: bool) -> bool:
    """Whether work of a project, which a department may have, may go to a group."""
    kept = bool(group.projects or group.departments)
    if kept and project not in group.projects and department not in group.departments:
        return False
    return group.role in ("", "interactive" if interactive else "training")
