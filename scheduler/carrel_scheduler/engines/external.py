"""The part of an engine whose nodes also run pods that others made, as the reconciler uses it.

The reconciler decides about these pods in the same plans as about workloads, but keeps nothing of
them itself: the engine takes events in (``handle``), brings the core's state in line with them
(``reconcile``), and carries plans out. It also knows nodes and volumes, which constrain where
workloads may run. The bodies of ``ExternalPods`` are those of an engine without such pods.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol

import msgspec
from typing_extensions import override

from carrel_scheduler.core.events import NodeSet, WorkloadQueued
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.plan import Binding, Eviction, Nomination
from carrel_scheduler.core.reasons import Reason, Token
from carrel_scheduler.core.requests import IN_GROUP, Request
from carrel_scheduler.core.state import State
from carrel_scheduler.engines import gpu_models
from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.engines.node_groups import NodeGroupsKnown, is_open, selecting
from carrel_scheduler.node.contract import NodeFacts
from carrel_scheduler.quarantine import Quarantine
from carrel_schema.answers import DeviceHolder
from carrel_schema.groups import NodeGroupSpec
from carrel_schema.names import NODE_GROUP
from carrel_schema.objects import NodeGroupLists, Workload


class NodeHealth(StrEnum):
    """The state of a node, for those whose tasks run there; the value is the reason's token."""

    IN_ORDER = "InOrder"
    CORDONED = "NodeCordoned"
    """The node takes no new work, as before it is drained."""
    DRAINING = "NodeDraining"
    SILENT = "NodeSilent"
    """The node does not answer; neither do the pods there."""
    GONE = "NodeGone"


NO_NODE_EVER: Final = frozenset({Token.NEVER_FITS, Token.NO_ELIGIBLE_NODE, Token.NO_MIG_INSTANCE})
"""Reasons why the nodes that are there could never hold work, and others could."""
WAITS_FOR_NODES: Final = "WaitsForNodes"
"""Token of the reason of work for which nodes are asked for."""


@dataclass(frozen=True, slots=True)
class NodeRequestNote:
    """The note about requested nodes, beside the reason why work is pending.

    Attributes:
        sentence: for people.
        waits: it waits for nodes; else none are asked for, and the sentence says why.
    """

    sentence: str
    waits: bool


@dataclass(frozen=True, slots=True)
class Disruption:
    """A disruption: another part of the cluster terminates the pod of a task.

    Attributes:
        node: where it runs.
        cause: why, in a few words.
    """

    task: TaskId
    node: str
    cause: str


@dataclass(frozen=True, slots=True)
class ExternalEvents:
    """Events of external pods and of nodes, in their order; only the engine reads them."""

    events: tuple[object, ...]


class PodCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of external pods.

    Attributes:
        pending: by ``active`` (queued), ``gated`` and ``unschedulable`` (can not be placed as
            things are).
        attempts: since the start, by ``scheduled``, ``unschedulable`` and ``error``.
        victims: evictions since the start.
    """

    pending: Mapping[str, int]
    attempts: Mapping[str, int]
    victims: int


def _same(event: NodeSet) -> NodeSet:
    return event


@dataclass(frozen=True, slots=True)
class ReconcilerAccess:
    """The parts of the reconciler that external pods use.

    Attributes:
        state: of the core, shared with the workloads.
        node_changed: called with what people see of a node.
        queued: called with the uid of each PodGroup that is queued.
        quarantine: of inputs that cannot be processed; ``None``: one of their own.
        draining: names of projects that are being deleted.
        withheld: adds the devices that nobody may use now to a node's broken ones.
    """

    state: State
    node_changed: Callable[[NodeFacts], None]
    queued: Callable[[str], None]
    quarantine: Quarantine | None = None
    draining: Container[str] = ()
    withheld: Callable[[NodeSet], NodeSet] = _same


class ExternalPods(Protocol):
    """See the module. ``epoch`` is the epoch of this scheduler."""

    epoch: int = 0

    def handle(self, events: Sequence[object], now: float) -> None:
        """Take events in; the core follows in ``reconcile``."""
        return

    def reconcile(self, now: float) -> bool:
        """Bring the core in line with the events; returns whether a timer asks for a decision."""
        return False

    @property
    def next_due(self) -> float | None:
        """The next expiry of a timer; epoch seconds."""
        return None

    def act(self) -> None:
        """Carry out the decisions of a pass."""
        return

    def clock_set_back(self, seconds: float) -> None:
        """Move all timers with a clock that was set back."""
        return

    # Plans: each returns whether the uid is one of an external PodGroup

    def place(self, binding: Binding) -> bool:
        """Allocate a task's place and bind its pod."""
        return False

    def evict(self, eviction: Eviction) -> bool:
        """Evict pods."""
        return False

    def nominate(self, nomination: Nomination) -> bool:
        """Nominate nodes: show pods where capacity is reserved for them."""
        return False

    def explain(self, uid: str, reason: Reason) -> bool:
        """Show a pending pod its reason; returns whether the reason is new."""
        return False

    # Nodes that are not there yet

    @property
    def asks_for_nodes(self) -> bool:
        """Whether nodes are asked for where work fits none of those that are there."""
        return False

    def nodes_for(self, uid: str, reason: Reason) -> NodeRequestNote | None:
        """Take in why work waits; what is said about nodes for it, ``None`` for nothing."""
        return None

    # Projects

    def project_changed(self, name: str) -> None:
        """A project was created or changed."""
        return

    def project_deleted(self, name: str, now: float) -> None:
        """A project was deleted."""
        return

    # Views

    def counts(self) -> PodCounts | None:
        """Counts for metrics; ``None`` without external pods."""
        return None

    def holder(
        self, uid: str, gpu_milli: int, *, releasing: bool, color_of: Callable[[str], int | None]
    ) -> DeviceHolder | None:
        """A PodGroup as the holder of a device; ``color_of`` gives the colour of a project."""
        return None

    # Nodes

    def node_health(self, name: str) -> NodeHealth:
        """The state of a node."""
        return NodeHealth.IN_ORDER

    def changed_nodes(self) -> Mapping[str, NodeHealth]:
        """The nodes whose health changed since the last call, and new ones."""
        return {}

    def disruptions(self) -> Sequence[Disruption]:
        """Disruptions of workloads' tasks since the last call."""
        return ()

    def is_short_of_gpus(self, name: str) -> bool:
        """Whether a node offers fewer GPUs than are in use there."""
        return False

    def node_groups(self) -> frozenset[str]:
        """Names of all node groups."""
        return frozenset()

    def allow_groups(
        self, allowed: Mapping[str, NodeGroupLists], departments: Mapping[str, str]
    ) -> None:
        """Keep the work of projects, by name, to groups of nodes; those not named to none.

        ``departments`` names the department of each project that has one.
        """
        return

    def group_of(self, node: str, labels: Mapping[str, str]) -> str:
        """The defined group of a node that the reconciler describes to the core; empty for none."""
        return ""

    def take_regrouped(self) -> bool:
        """Whether the reconciler has to describe its nodes again; true once after each change."""
        return False

    def open_node_groups(self, project: str, *, interactive: bool) -> frozenset[str] | None:
        """The node groups that a project's work may use; ``None`` for all nodes."""
        return None

    def topology_levels(self) -> Sequence[str]:
        """The levels at which the tasks of a gang may lie together, from coarse to fine."""
        return ("node",)

    # Placement constraints of workloads

    def claims_of(self, workload: Workload) -> tuple[str, ...]:
        """The volume claims that constrain where a workload may run."""
        return ()

    def constrained(self, event: WorkloadQueued, claims: tuple[str, ...] = ()) -> WorkloadQueued:
        """A workload's request with the nodes that are open to it and that its volumes reach."""
        return event

    def follow_volumes(self, uid: str, claims: tuple[str, ...]) -> None:
        """Update the constraints of a queued workload when its volumes change."""
        return


class NoExternalPods(ExternalPods):
    """The external pods of one machine: it has none.

    Its one node is in the group that selects it, else in one that is called after the model of its
    GPUs; where these are unlike, each GPU is in the one of its model.

    Args:
        state: of the core; ``None``: no node is known.
    """

    def __init__(self, state: State | None = None) -> None:
        self._state = state
        self._allowed: Mapping[str, NodeGroupLists] = {}
        self._departments: Mapping[str, str] = {}
        self._groups: Mapping[str, NodeGroupSpec] = {}
        self._regrouped = False

    @override
    def handle(self, events: Sequence[object], now: float) -> None:
        """Replace the defined node groups."""
        for event in events:
            if isinstance(event, NodeGroupsKnown) and event.groups != self._groups:
                self._groups, self._regrouped = dict(event.groups), True

    @override
    def group_of(self, node: str, labels: Mapping[str, str]) -> str:
        """The first defined node group that selects a node; empty without one."""
        return selecting(self._groups, node, labels)

    @override
    def take_regrouped(self) -> bool:
        """Whether the groups changed since the last call."""
        regrouped, self._regrouped = self._regrouped, False
        return regrouped

    @override
    def node_groups(self) -> frozenset[str]:
        """The groups that are defined, and those of the nodes that the core knows."""
        return self._inhabited().union(self._groups)

    def _inhabited(self) -> frozenset[str]:
        told = (one for labels in self._labels() if (one := labels.get(NODE_GROUP)))
        return frozenset(name for one in told for name in one.split(gpu_models.SEVERAL))

    def _labels(self) -> list[dict[str, str]]:
        """The labels of each node for the core."""
        if self._state is None:
            return []
        nodes = self._state.nodes
        return [dict(nodes.fact(slot).labels) for slot in nodes.slots.values()]

    def _mixes(self) -> frozenset[str]:
        """Labels of nodes with GPUs of several models, each in the group of its own."""
        return frozenset(
            labels[gpu_models.LABEL]
            for labels in self._labels()
            if gpu_models.SEVERAL in labels.get(NODE_GROUP, "")
        )

    @override
    def allow_groups(
        self, allowed: Mapping[str, NodeGroupLists], departments: Mapping[str, str]
    ) -> None:
        """Keep the work of projects to groups."""
        self._allowed, self._departments = allowed, departments

    @override
    def open_node_groups(self, project: str, *, interactive: bool) -> frozenset[str] | None:
        """The node groups to which a project's work is restricted; ``None``: no restriction."""
        department = self._departments.get(project, "")
        closed = frozenset(
            name
            for name, group in self._groups.items()
            if not is_open(group, project, department, interactive=interactive)
        )
        listed = listed_groups(self._allowed, project, interactive=interactive)
        if listed is not None:
            return listed - closed
        inhabited = self._inhabited()
        return self.node_groups() - closed if closed & inhabited else None

    @override
    def constrained(self, event: WorkloadQueued, claims: tuple[str, ...] = ()) -> WorkloadQueued:
        """The event with the node groups to which the workload is restricted."""
        groups = self.open_node_groups(event.project, interactive=event.interactive)
        if groups is None:
            return event
        mixes = self._mixes()
        gang = None if event.gang is None else _gang_within(event.gang, groups, mixes)
        return replace(event, request=_within(event.request, groups, mixes), gang=gang)


def listed_groups(
    allowed: Mapping[str, NodeGroupLists], project: str, *, interactive: bool
) -> frozenset[str] | None:
    """The groups that a project's work is kept to; ``None`` where it may go everywhere."""
    lists = allowed.get(project, NodeGroupLists())
    found = lists.interactive if interactive else lists.training
    return frozenset(found) if found else None


def _gang_within(group: Group, names: frozenset[str], mixes: frozenset[str]) -> Group:
    return replace(
        group,
        requests=tuple(_within(one, names, mixes) for one in group.requests),
        groups=tuple(_gang_within(one, names, mixes) for one in group.groups),
    )


def _within(request: Request, names: frozenset[str], mixes: frozenset[str]) -> Request:
    return replace(request, where=gpu_models.within_groups(request.where, IN_GROUP, names, mixes))
