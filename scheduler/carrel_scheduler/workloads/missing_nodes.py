"""Nodes that nobody tells of while work of ours is there.

A node may be deleted, or come back with fewer GPUs, while the scheduler is not running. The core
keeps a place for what was started there until the engine says what became of it; nothing else may
start on such a node, nor on such a GPU.
"""

from collections.abc import Collection
from dataclasses import replace

from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.state import State


def keep(state: State, name: str, devices: Collection[int]) -> None:
    """Have the core know a node with these devices, whatever is told of it now."""
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


def close(state: State, name: str) -> bool:
    """A node was deleted; whether tasks of it are still to be heard of, so that it stays closed."""
    slot = state.nodes.slots.get(name)
    if slot is None or not state.tasks.rows_on(slot):
        return False
    fact = state.nodes.fact(slot)
    if fact.schedulable or fact.draining:
        state.apply(replace(fact, schedulable=False, draining=False))
    return True
