"""Handlers of events about nodes, topologies and queues.

When the kinds of GPUs in the cluster change, requests for GPU memory and MIG profiles are counted
again: they count as what they take at most on the known nodes.
"""

from carrel_scheduler.core.changes.workloads import (
    ask,
    release_reservation,
    row_user,
    stop_asking,
)
from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import (
    InstanceRemoved,
    NodeRemoved,
    NodeSet,
    QueueRemoved,
    QueueSet,
    TopologySet,
    UsageSeen,
)


def node_set(state: Columns, event: NodeSet) -> None:
    """A node appeared or changed."""
    before = set(state.nodes.hardware)
    state.nodes.set(event)
    if before != set(state.nodes.hardware):
        recount_needs(state)
    slot = state.nodes.slot(event.name)
    state.topologies.set_node(slot, event.name, event.labels)
    state.capacity.mark(slot)


def node_gone(state: Columns, event: NodeRemoved) -> None:
    """A node left."""
    slot = state.nodes.slot(event.name)
    if state.tasks.rows_on(slot):
        raise InvalidEvent("node_in_use", "name", event.name, "a node without tasks")
    for uid in sorted(state.reserved):
        job = state.reserved[uid]
        if any(place.node == slot for _, place in job.reservation):
            stop_asking(state, job)
            release_reservation(state, job)
            ask(state, job)
    state.warm.forget(slot)
    before = set(state.nodes.hardware)
    state.nodes.drop(event.name)
    if before != set(state.nodes.hardware):
        recount_needs(state)
    state.topologies.remove_node(slot)
    state.capacity.mark(slot)


def topology_set(state: Columns, event: TopologySet) -> None:
    """The levels of a topology."""
    state.topologies.set_topology(event)


def queue_set(state: Columns, event: QueueSet) -> None:
    """Handle a new queue, or changed rules of a queue."""
    parent = state.queues.slots.get(event.parent)
    if parent is not None and state.jobs.in_queue.get(parent):
        expected = "a queue that holds no workloads itself"
        raise InvalidEvent("queue_in_use", "parent", event.parent, expected)
    state.queues.set(event)
    renew_rows(state, state.queues.slots[event.name])


def renew_rows(state: Columns, slot: int) -> None:
    """Let waiting work of a queue stand in rows by user, or not, as its rules say now."""
    moved = [
        job
        for row in state.waiting
        if row.queue == slot
        for job in row.members.values()
        if row.user != row_user(state, job)
    ]
    for job in sorted(moved, key=lambda job: job.uid):
        state.waiting.remove(job)
        state.waiting.add(job, row_user(state, job))


def queue_gone(state: Columns, event: QueueRemoved) -> None:
    """A queue was deleted."""
    slot = state.queues.slot(event.name, "name")
    if state.jobs.in_queue.get(slot):
        raise InvalidEvent("queue_in_use", "name", event.name, "a queue without workloads")
    state.queues.drop(event.name)


def usage_seen(state: Columns, event: UsageSeen) -> None:
    """Past use for time-based fair share."""
    state.queues.set_usage(event)


def instance_removed(state: Columns, event: InstanceRemoved) -> None:
    """Handle the removal of an unused MIG instance."""
    state.warm.removed(state.nodes.slot(event.node), event.device, event.slots)


def recount_needs(state: Columns) -> None:
    """Update the amounts of pending work whose requests now count differently against quotas."""
    renewed = state.shapes.renewed()
    if not renewed:
        return
    jobs = [job for _, job in sorted(state.jobs.by_uid.items()) if job.shape.id in renewed]
    for job in jobs:
        stop_asking(state, job)
    for job in jobs:
        job.shape = renewed[job.shape.id]
        ask(state, job)
