"""Changes of the core's state that workloads and external pods make in the same way.

A node may be deleted, or come back with fewer GPUs, while the scheduler is not running. The core
keeps the allocation of what was started there until the engine reports its end; nothing else may
start on such a node, nor on such a GPU.
"""

from collections.abc import Collection
from dataclasses import replace

from carrel_scheduler.core.events import NodeSet, Outcome, TaskReleased, WorkloadRemoved
from carrel_scheduler.core.state import State


def purge(state: State, uid: str) -> None:
    """Release all allocations of a workload and remove it; does nothing if it is unknown.

    Since when they are free makes no difference once it is removed.
    """
    job = state.jobs.by_uid.get(uid)
    if job is None:
        return
    for index in sorted(job.rows):
        state.apply(TaskReleased(uid, index, Outcome.GONE, at=0.0))
    state.apply(WorkloadRemoved(uid))


def keep_node(state: State, name: str, devices: Collection[int]) -> None:
    """Have the core know a node with these devices; missing ones are added as broken."""
    least = max(devices, default=-1) + 1
    slot = state.nodes.slots.get(name)
    if slot is None:
        broken = frozenset(range(least))
        state.apply(NodeSet(name, least, 0, 0, schedulable=False, broken_devices=broken))
        return
    fact = state.nodes.fact(slot)
    if fact.devices < least:
        broken = fact.broken_devices | frozenset(range(fact.devices, least))
        state.apply(replace(fact, devices=least, broken_devices=broken))


def close_node(state: State, name: str) -> bool:
    """Stop scheduling on a deleted node; returns whether tasks there have not ended yet."""
    slot = state.nodes.slots.get(name)
    if slot is None or not state.tasks.rows_on(slot):
        return False
    fact = state.nodes.fact(slot)
    if fact.schedulable or fact.draining:
        state.apply(replace(fact, schedulable=False, draining=False))
    return True
