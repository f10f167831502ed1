"""Disruptions of a cluster: nodes that are drained or silent, pods that other parts evict.

The owners of work on a node that is drained, or does not answer, are warned while it still runs. A
task whose pod another part of the cluster evicts is preempted as by a plan: it is queued again, and
a workspace says why it stopped. A task that ends without notice is lost; the engine reports that.
"""

from collections.abc import Mapping
from typing import Final

from carrel_scheduler.core.messages.sentences import join
from carrel_scheduler.engines.external import Disruption, NodeHealth
from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.gangs import shape
from carrel_scheduler.workloads.lifecycle.termination import preempt
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges
from carrel_schema.objects import ReasonInfo

DRAIN, EVICT = "drain", "evict"
"""What such a preemption is called in the ledger: its node is being emptied, or anything else."""
_AWAY = (NodeHealth.SILENT, NodeHealth.GONE)


def follow(changes: PassChanges) -> None:
    """Handle the changes of nodes and pods since the last pass."""
    if changed := changes.external_pods.changed_nodes():
        _tell(changes, changed)
    for disruption in changes.external_pods.disruptions():
        _disrupted(changes, disruption)


def look_around(changes: PassChanges, entry: CachedWorkload) -> None:
    """Write the state of its nodes into the reason of running work, unless all are in order."""
    status = entry.workload.status
    told = status.reason
    if status.phase != "running" or (told is not None and told.token not in OF_NODES):
        return
    nodes = sorted({place.node for place in entry.places.values()})
    standings = {name: changes.external_pods.node_health(name) for name in nodes}
    desk = entry.workload.spec.kind == "workspace"
    reason = node_trouble(standings, changes.now, desk=desk)
    if _words(reason) != _words(told):
        status.reason = reason
        changes.mark(entry)


def _tell(changes: PassChanges, changed: Mapping[str, NodeHealth]) -> None:
    """Tell those whose work is on nodes of which something else is true now."""
    for entry in changes.cache.holding:
        if any(place.node in changed for place in entry.places.values()):
            look_around(changes, entry)


def _words(reason: ReasonInfo | None) -> str:
    return "" if reason is None else reason.sentence


def _disrupted(changes: PassChanges, disruption: Disruption) -> None:
    task = disruption.task
    entry = changes.cache.get(task.workload_uid)
    if entry is None or task.index not in entry.alive or task != entry.task_id(task.index):
        return
    standing = changes.external_pods.node_health(disruption.node)
    going_on = entry.workload.status.phase in ("starting", "running") and not entry.ending
    if not going_on or standing in _AWAY or task.index in entry.leaving or _does_without(entry):
        return
    drained = standing in (NodeHealth.CORDONED, NodeHealth.DRAINING)
    how = "" if drained else disruption.cause
    desk = entry.workload.spec.kind == "workspace"
    reason = told_to_leave(disruption.node, how, desk=desk)
    changes.decide(entry, "evict", reason=reason)
    preempt(changes, entry, DRAIN if drained else EVICT, reason)


def _does_without(entry: CachedWorkload) -> bool:
    """Whether the others go on when one of its tasks has ended."""
    spec = entry.workload.spec
    stays = len(entry.places) - len(entry.leaving)
    return not shape.resizes(spec) and stays - 1 >= shape.least_parts(spec)


_MOST_NODES: Final = 5
_LATER: Final = "Save your work; started again, the workspace comes up on another node."
_NOW: Final = "Save your work now, and start the workspace again: it comes up on another node."
_WAIT: Final = "Its files are safe; if nothing is heard for long it ends, and can be started again."
_MOVES: Final = "If nothing is heard for long it starts elsewhere, from its last checkpoint."
_NO_ANSWER: Final = (
    (
        "{} does not answer; what runs there may be lost.",
        "{} do not answer; what runs there may be lost.",
    ),
    _WAIT,
    _MOVES,
)
_OF_NODES: Final[Mapping[NodeHealth, tuple[tuple[str, str], str, str]]] = {
    NodeHealth.GONE: _NO_ANSWER,
    NodeHealth.SILENT: _NO_ANSWER,
    NodeHealth.DRAINING: (
        ("{} is being emptied for maintenance.", "{} are being emptied for maintenance."),
        _LATER,
        "",
    ),
    NodeHealth.CORDONED: (
        (
            "{} takes no new work and may be emptied soon.",
            "{} take no new work and may be emptied soon.",
        ),
        _LATER,
        "",
    ),
}
"""Sentences about one node and several, help for who sits at a workspace, help for others; without
such help they are not told."""
OF_NODES: Final = frozenset(standing.value for standing in _OF_NODES)


def told_to_leave(node: str, how: str, *, desk: bool) -> ReasonInfo:
    """Another part of the cluster ends its pod.

    Args:
        node: where it runs.
        how: in a few words, where the node is not just being emptied.
        desk: its owner sits at it.
    """
    emptied = f"`{node}` is being emptied for maintenance."
    return ReasonInfo(
        token="Evicted" if how else "NodeDrained",
        cls="evicted",
        sentence=f"It has to leave `{node}`: {how}." if how else emptied,
        help=_NOW if desk else "It goes on from its last checkpoint as soon as there is room.",
        data={"nodes": [node]},
    )


def node_trouble(
    standings: Mapping[str, NodeHealth], at: float, *, desk: bool
) -> ReasonInfo | None:
    """What its owner should know of its nodes while it runs; ``None`` when nothing.

    Args:
        standings: of its nodes, in order.
        at: since when that is so, epoch seconds.
        desk: its owner sits at it; other work moves by itself.
    """
    for standing, (said, at_desk, elsewise) in _OF_NODES.items():
        names = [name for name, one in standings.items() if one is standing][:_MOST_NODES]
        if names and (desk or elsewise):
            return ReasonInfo(
                token=standing.value,
                sentence=said[len(names) > 1].format(join([f"`{name}`" for name in names])),
                help=at_desk if desk else elsewise,
                data={"nodes": names, "at": at},
            )
    return None
