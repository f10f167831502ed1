"""Groups of nodes: which a node is in, and which are open to whose work.

A node is in the group that a resource selects it for, the first by name, else in the one that its
label names. A group may be kept for projects and departments, and for training or for interactive
work; a node that is in no group is open to all. Work that asks for a group by name gets that one
only.
"""

from collections.abc import Mapping

from carrel_scheduler.engines.external import listed_groups
from carrel_scheduler.engines.gpu_models import UNGROUPED
from carrel_scheduler.engines.kubernetes.pods.devices.task_shares import SharingTerms
from carrel_scheduler.engines.kubernetes.pods.nodes import node_group
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused
from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod, Requirement
from carrel_scheduler.engines.node_groups import is_open, selecting
from carrel_schema.groups import NodeGroupSpec
from carrel_schema.names import NODE_GROUP
from carrel_schema.objects import NodeGroupLists


class NodeGroups:
    """The node groups: defined ones, and those that exist as node labels only.

    ``version`` changes with them. A group without a resource is open to all. ``claimed_gpus`` says
    whether the GPUs of some nodes are asked for by claims: only pods with claims can use those, and
    GPUs of tasks where ``tasks_claim``: whole ones, and those that are shared on these ``terms``.

    Args:
        by_role: nodes take only work of their roles, beside that.
    """

    def __init__(self, *, by_role: bool = False) -> None:
        self.version = 0
        self.by_role = by_role
        self.claimed_gpus = self.tasks_claim = False
        self.terms: frozenset[SharingTerms] = frozenset()
        self._labelled: set[str] = set()
        self._groups: dict[str, NodeGroupSpec] = {}
        self._allowed: Mapping[str, NodeGroupLists] = {}
        self._departments: Mapping[str, str] = {}

    def set(self, name: str, spec: NodeGroupSpec) -> bool:
        """A group appeared or changed; whether its nodes and all work are to be evaluated again."""
        if self._groups.get(name) == spec:
            return False
        self._groups[name] = spec
        self.version += 1
        return True

    def set_claimed_gpus(
        self,
        *,
        there: bool,
        by_tasks: bool = False,
        terms: frozenset[SharingTerms] = frozenset(),
    ) -> bool:
        """Set whether claims ask for GPUs, and for those of tasks; whether that changed."""
        if (self.claimed_gpus, self.tasks_claim, self.terms) == (there, by_tasks, terms):
            return False
        self.claimed_gpus, self.tasks_claim, self.terms = there, by_tasks, terms
        self.version += 1
        return True

    def allow(self, allowed: Mapping[str, NodeGroupLists], departments: Mapping[str, str]) -> bool:
        """Set the groups of projects, and their departments; returns whether anything changed."""
        kept = {name: lists for name, lists in allowed.items() if lists != NodeGroupLists()}
        if (kept, departments) == (self._allowed, self._departments):
            return False
        self._allowed, self._departments = kept, dict(departments)
        self.version += 1
        return True

    def drop(self, name: str) -> None:
        """A group is gone."""
        if self._groups.pop(name, None) is not None:
            self.version += 1

    def names(self) -> frozenset[str]:
        """The names of all groups."""
        return frozenset(self._groups) | self._labelled

    def of(self, node: Node) -> str:
        """The group of a node; empty in none."""
        meta = node.metadata
        return selecting(self._groups, meta.name, meta.labels) or self._named(node_group(node))

    def _named(self, name: str) -> str:
        if name and name not in self._labelled:
            self._labelled.add(name)
            self.version += name not in self._groups
        return name

    def selectors(self, names: frozenset[str]) -> list[tuple[Requirement, ...]]:
        """The label terms of new nodes in these groups: one of them holds.

        Nodes without a group are those that no closed group selects by a single label. A group of
        named nodes gets no new ones.
        """
        if UNGROUPED in names:
            closed = (spec.match_labels for key, spec in self._groups.items() if key not in names)
            single = [next(iter(labels.items())) for labels in closed if len(labels) == 1]
            return [tuple(Requirement(key, "NotIn", (value,)) for key, value in single)]
        found: list[tuple[Requirement, ...]] = []
        for name in sorted(names):
            group = self._groups.get(name)
            labels = {NODE_GROUP: name} if group is None else group.match_labels
            if labels:
                one = [Requirement(key, "In", (value,)) for key, value in sorted(labels.items())]
                found.append(tuple(one))
        return found

    def open_to(self, project: str, *, interactive: bool) -> frozenset[str] | None:
        """The groups that work of a project may use, ``UNGROUPED`` too; ``None`` for all nodes."""
        listed = listed_groups(self._allowed, project, interactive=interactive)
        closed = {
            name
            for name, group in self._groups.items()
            if not is_open(
                group, project, self._departments.get(project, ""), interactive=interactive
            )
        }
        if listed is not None:
            return listed - closed
        return frozenset({UNGROUPED, *self.names()} - closed) if closed else None


def asks_for_group(pod: Pod) -> str:
    """The group that a pod names; empty for any."""
    meta = pod.metadata
    return meta.labels.get(NODE_GROUP) or meta.annotations.get(NODE_GROUP, "")


def asked_group(pod: Pod, groups: frozenset[str] | None) -> frozenset[str] | None:
    """The groups that a pod may use: of those that are open to it the one that it asks for.

    Raises:
        PodRefused: ``group_not_open``.
    """
    asked = asks_for_group(pod)
    if not asked:
        return groups
    if groups is not None and asked not in groups:
        names = ", ".join(sorted(groups - {UNGROUPED})) or "left out"
        raise PodRefused("group_not_open", NODE_GROUP, asked, f"a group open to it: {names}")
    return frozenset({asked})
