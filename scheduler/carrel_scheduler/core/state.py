"""The state: the columns, changed by events only.

An event is checked before anything changes, so a refused one leaves no trace. How each event
changes the columns stands in ``changes``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from carrel_scheduler.core import events, views
from carrel_scheduler.core.changes import cluster, tasks, workloads
from carrel_scheduler.core.columns import Columns

HANDLERS: Final[dict[type, Callable[[Columns, Any], None]]] = {
    events.NodeSet: cluster.node_set,
    events.NodeRemoved: cluster.node_gone,
    events.TopologySet: cluster.topology_set,
    events.QueueSet: cluster.queue_set,
    events.QueueRemoved: cluster.queue_gone,
    events.UsageSeen: cluster.usage_seen,
    events.InstanceRemoved: cluster.instance_removed,
    events.WorkloadQueued: workloads.queued,
    events.WorkloadRemoved: workloads.gone,
    events.CheckpointSeen: workloads.saved,
    events.TaskPlaced: tasks.placed,
    events.TaskReleasing: tasks.told_to_stop,
    events.TaskStuck: tasks.found_stuck,
    events.TaskReleased: tasks.released,
    events.CapacityReserved: workloads.reserve_capacity,
}


COUNTED: Final = frozenset(
    {
        events.WorkloadQueued,
        events.WorkloadRemoved,
        events.CheckpointSeen,
        events.TaskPlaced,
        events.TaskReleasing,
        events.TaskReleased,
        events.CapacityReserved,
    }
)
"""The changes that the memory of decisions notices by counts; the other ones reset it."""


class State(Columns):
    """All nodes, queues and workloads. ``version`` counts the events applied."""

    def apply(self, event: events.Event) -> None:
        """Apply an event. Raises ``InvalidEvent`` when it contradicts the state."""
        HANDLERS[type(event)](self, event)
        self.version += 1
        if type(event) not in COUNTED:
            self.cache.forget()

    @property
    def asking(self) -> int:
        """The number of pending workloads."""
        return self.waiting.count + len(self.partial)

    # Queries of the service; the answers are described in ``views``

    def projects(self) -> Sequence[str]:
        """The names of all queues that may hold workloads, in alphabetical order."""
        return [name for name in self.queue_names() if self.queues.is_leaf(self.queues.slots[name])]

    def queue_names(self) -> Sequence[str]:
        """The names of all queues, in alphabetical order."""
        return sorted(self.queues.slots)

    def project_use(self, name: str) -> views.QueueUse:
        """A queue's usage and pending requests. Raises ``KeyError`` for an unknown name."""
        return views.queue_use(self, name)

    def use_of_all(self) -> Mapping[str, views.QueueUse]:
        """The same of every queue, by name."""
        return views.use_of_all(self)

    def node_views(self) -> Sequence[views.NodeSnapshot]:
        """All nodes by name, with their devices and the tasks on them."""
        return views.node_views(self)

    def workload(self, uid: str) -> views.WorkloadView:
        """The view of a workload. Raises ``UnknownWorkload``."""
        return views.workload_view(self, self.job(uid))

    def is_borrowed(self, uid: str) -> bool:
        """Whether a running workload is over the GPU quota of its queue."""
        job = self.jobs.by_uid.get(uid)
        return job is not None and self.over_quota.has(self.queues, job)
