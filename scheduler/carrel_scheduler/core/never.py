"""What could never be: a task that fits on no node even when the node is empty.

Judged against everything there is, in use, broken, draining or switched off: only more hardware, or
asking for less, would help. To blame is the first resource (GPUs before CPU, memory and countable
ones) that is too large for every eligible node by itself; otherwise the first without which the
rest would fit somewhere, measured on the nodes that have the rest.
"""

from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core import device_choice
from carrel_scheduler.core.classes import Form, GpuKind, gpu_kind
from carrel_scheduler.core.eligible import Eligible
from carrel_scheduler.core.layers import CPU, MEMORY, Bools, Counts, Layer
from carrel_scheduler.core.mig import full_slots
from carrel_scheduler.core.nodes import NodeColumns
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI

GPU, CPU_NAME, MEMORY_NAME = "gpu", "cpu", "memory"


@dataclass(frozen=True, slots=True)
class Never:
    """Why a task fits on no node.

    Attributes:
        resource: ``gpu``, ``cpu``, ``memory``, or the name of a countable resource; empty when no
            node is eligible at all.
        asked: of it: GPUs for whole devices, shares and MIG instances, MiB for GPU memory,
            millicores, MiB, or a count.
        largest: the largest amount of it on a node that could be used; below ``asked`` unless the
            resources are there only on different nodes.
        no_node: labels, taints or the form of the GPU request leave no node.
    """

    resource: str
    asked: int
    largest: int
    no_node: bool = False


def never(request: Request, nodes: NodeColumns, eligible: Eligible) -> Never | None:
    """Why a task fits on no node even when empty, or ``None`` where it fits on one."""
    there = eligible.ever(request)
    if not there.any():
        return Never("", 0, 0, no_node=True)
    needs = _needs(request, nodes, eligible)
    if bool((there & np.logical_and.reduce([fits for _, _, fits, _ in needs])).any()):
        return None
    for name, asked, fits, amounts in needs:
        if not (there & fits).any():
            return Never(name, asked, int(amounts.compress(there).max()))
    for place, (name, asked, _, amounts) in enumerate(needs):
        rest = there.copy()
        for other, (_, _, fits, _) in enumerate(needs):
            if other != place:
                rest &= fits
        if rest.any():
            return Never(name, asked, int(amounts.compress(rest).max()))
    name, asked, _, amounts = needs[0]
    return Never(name, asked, int(amounts.compress(there).max()))


_Needed = tuple[str, int, Bools, Counts]
"""Name, amount asked for, (N,) where it is there, (N,) amounts."""


def _needs(request: Request, nodes: NodeColumns, eligible: Eligible) -> list[_Needed]:
    kind = gpu_kind(request)
    empty = empty_room(nodes)
    found: list[_Needed] = []
    if kind.form is not Form.NONE:
        counts = device_choice.capacity(
            kind, empty.devices, empty.slots, nodes.gpu_memory, eligible.models()
        )
        found.append((GPU, _asked_gpu(kind), counts > 0, _gpu_amounts(kind, nodes)))
    host = [(CPU_NAME, CPU, request.cpu_milli), (MEMORY_NAME, MEMORY, request.memory_mib)]
    for name, row, amount in host:
        found.append((name, amount, empty.host[row] >= amount, empty.host[row]))
    for name, amount in request.extended:
        known = nodes.extended.get(name)
        there = np.zeros_like(nodes.devices) if known is None else empty.host[known]
        found.append((name, amount, there >= amount, there))
    return found


def _asked_gpu(kind: GpuKind) -> int:
    if (kind.form is Form.MEMORY and kind.devices == 1) or kind.form is Form.WHOLE:
        return kind.amount
    return kind.devices


def _gpu_amounts(kind: GpuKind, nodes: NodeColumns) -> Counts:
    if kind.form is Form.MEMORY and kind.devices == 1:
        return nodes.gpu_memory
    return nodes.devices


def empty_room(nodes: NodeColumns) -> Layer:
    """The room of all nodes if nothing ran and nothing were broken or closed."""
    there = np.arange(len(nodes.usable))[:, None] < nodes.devices
    slots = np.zeros(there.shape, np.uint8)
    for slot in np.flatnonzero(nodes.mig).tolist():
        slots[:, slot] = full_slots(nodes.fact(slot).mig_model)
    return Layer((there * MILLI).astype(np.int16), nodes.capacity, slots * there)
