"""What happens to nodes and pods of a cluster that our own work did not ask for.

A node that is to be emptied, or does not answer, is told to those whose work is there while there
is time. Whom somebody else has end gives way as if we had told it to: it comes again elsewhere, and
a workspace says why it is gone. What ends without a word is lost, which the engine tells.
"""

from collections.abc import Mapping

from carrel_scheduler.engines.external import Disruption, NodeHealth
from carrel_scheduler.workloads.cache import CachedWorkload
from carrel_scheduler.workloads.gangs import shape
from carrel_scheduler.workloads.lifecycle.node_messages import OF_NODES, node_trouble, told_to_leave
from carrel_scheduler.workloads.lifecycle.termination import preempt
from carrel_scheduler.workloads.reconcile.pass_changes import PassChanges
from carrel_schema.objects import ReasonInfo

DRAIN, EVICT = "drain", "evict"
"""What such a preemption is called in the ledger: its node is being emptied, or anything else."""
_AWAY = (NodeHealth.SILENT, NodeHealth.GONE)


def follow(changes: PassChanges) -> None:
    """Take in what was heard of nodes and pods since the last turn."""
    if changed := changes.external_pods.changed_nodes():
        _tell(changes, changed)
    for disruption in changes.external_pods.disruptions():
        _disrupted(changes, disruption)


def look_around(changes: PassChanges, entry: CachedWorkload) -> None:
    """Tell the owner of running work how its nodes are, if that is worth telling."""
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
