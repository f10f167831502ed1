"""What the queues share out: the room of the nodes that take new work.

Others' tasks on nodes that take none count too, as long as they run.
"""

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.layers import Bools
from carrel_scheduler.core.resources import MILLI, Triple


def cluster_total(state: Columns) -> Triple:
    """GPU thousandths, millicores and MiB; counted anew when nodes changed, or some rest."""
    nodes, memory = state.nodes, state.memory
    version = nodes.version + nodes.amounts_version
    if memory.total is not None and memory.total[0] == version:
        return memory.total[1]
    total, resting = _counted(state), ~nodes.schedulable
    some_rest = bool((nodes.capacity * resting).any() or (nodes.usable & resting).any())
    memory.total = None if some_rest else (version, total)
    return total


def _counted(state: Columns) -> Triple:
    """The room of schedulable nodes, and what tasks hold elsewhere."""
    nodes = state.nodes
    usable = nodes.usable.sum(axis=0)
    healthy = int((usable * nodes.schedulable).sum()) * MILLI
    healthy += int((nodes.counted * nodes.schedulable).sum())
    cpu, memory = (nodes.capacity[:2] * nodes.schedulable).sum(axis=1)
    resting = ~nodes.schedulable
    if resting.any():
        used = (nodes.capacity[:2] - nodes.free.host[:2]) * resting
        cpu, memory = cpu + used[0].sum(), memory + used[1].sum()
        held = nodes.usable & resting & (nodes.free.devices < MILLI)
        healthy += int(held.sum()) * MILLI + _counted_on(state, resting)
    return healthy, int(cpu), int(memory)


def _counted_on(state: Columns, nodes: Bools) -> int:
    """Thousandths of GPUs that tasks on these nodes, (N,), hold beside devices."""
    tasks = state.tasks
    rows = tasks.used()
    return int(tasks.counted.take(rows)[nodes.take(tasks.node.take(rows))].sum())
