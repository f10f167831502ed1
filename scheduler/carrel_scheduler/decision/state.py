"""The state: the columns, changed by events only.

An event is checked before anything changes, so a refused one leaves no trace. How each event
changes the columns stands in ``changes``.
"""

from collections.abc import Callable
from typing import Any, Final

from carrel_scheduler.decision import events
from carrel_scheduler.decision.changes import cluster, promises, tasks, workloads
from carrel_scheduler.decision.columns import Columns

HANDLERS: Final[dict[type, Callable[[Columns, Any], None]]] = {
    events.NodeSet: cluster.node_set,
    events.NodeGone: cluster.node_gone,
    events.TopologySet: cluster.topology_set,
    events.QueueSet: cluster.queue_set,
    events.QueueGone: cluster.queue_gone,
    events.UsageSeen: cluster.usage_seen,
    events.InstanceRemoved: cluster.instance_removed,
    events.WorkloadQueued: workloads.queued,
    events.WorkloadGone: workloads.gone,
    events.CheckpointSeen: workloads.saved,
    events.TaskPlaced: tasks.placed,
    events.TaskReleasing: tasks.told_to_stop,
    events.TaskStuck: tasks.found_stuck,
    events.TaskReleased: tasks.released,
    events.RoomPromised: promises.promised,
}


class State(Columns):
    """All nodes, queues and workloads. ``version`` counts the events applied."""

    def apply(self, event: events.Event) -> None:
        """Take in a fact. Raises ``InvalidEvent`` when it contradicts the state."""
        HANDLERS[type(event)](self, event)
        self.version += 1
