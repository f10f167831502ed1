"""What there is room for in one cycle, as its moves leave it.

Capacity rows belong to the state and follow the overlay while the cycle lasts: the nodes that moves
have touched are marked, so that the next look at them, in this cycle or after it, counts anew; also
when another cycle has looked in between.
"""

import numpy as np

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.cycle.room import Room
from carrel_scheduler.core.devices.classes import Form
from carrel_scheduler.core.devices.device_choice import Hardware, View, choose, hardware_of
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.layers import Counts, Footprint
from carrel_scheduler.core.resources import Triple

FEW_MOVES = 256


class CycleRoom:
    """The overlay of the room, and questions about it.

    Attributes:
        state: what is decided upon.
        room: the overlay.
    """

    def __init__(self, state: Columns) -> None:
        self.state = state
        self.room = Room(state.nodes)
        self._seen = 0
        self._kept: dict[tuple[int, bool], tuple[int, Counts]] = {}
        state.capacity.forget_tried()

    def free_in_all(self) -> Triple:
        """The room of all nodes together, coming room included."""
        view = self.room.soon
        devices = int(view.devices.sum(dtype=np.int64))
        return devices, int(view.host[0].sum()), int(view.host[1].sum())

    def sync(self) -> None:
        """Bring the capacity rows up to date with the moves."""
        log, capacity = self.room.log, self.state.capacity
        if not capacity.sees(self.room.idle):
            self._seen = 0
        if self._seen < len(log):
            capacity.mark_tried(log[self._seen :])
            self._seen = len(log)
        elif capacity.follows(self.room.idle):
            return
        capacity.sync(self.room.idle)

    def counts(self, cls: int, *, soon: bool) -> Counts:
        """(N,) how many tasks of a class fit on each node, at once or soon."""
        if soon:
            return self.state.capacity.counts(self.room.soon, cls)
        self.sync()
        return self.state.capacity.column(cls).astype(np.int64)

    def counts_kept(self, cls: int, *, soon: bool) -> Counts:
        """``counts``, kept for the cycle and brought up to date. Do not change it."""
        log, view = self.room.log, self.room.soon if soon else self.room.idle
        seen, found = self._kept.get((cls, soon), (0, None))
        if found is None or len(log) - seen > FEW_MOVES:
            found = self.state.capacity.counts(view, cls)
        elif seen < len(log):
            self.state.capacity.recount(found, view, cls, set(log[seen:]))
        self._kept[cls, soon] = len(log), found
        return found

    def footprint(self, cls: int, node: int, *, soon: bool, tasks: int = 1) -> Footprint | None:
        """What a task of this class takes on a node, or ``None`` where it does not fit."""
        state = self.state
        view = self.room.soon if soon else self.room.idle
        host = state.classes.host(cls)
        for row, amount in enumerate(host):
            if amount and amount > view.host.item(row, node):
                return None
        kind = state.classes.kinds[cls]
        counted = state.classes.request(cls).counted_milli
        if kind.form is Form.NONE:
            return Footprint(node, (), 0, host, counted=counted)
        if not soon and kind.form is Form.SHARE:
            device = state.chooser.device(cls, view, node)
            if device >= 0:
                return Footprint(node, (device,), kind.amount, host, counted=counted)
        fact = state.nodes.fact(node)
        idle = self.room.idle
        choice = choose(
            kind,
            self._hardware(node, fact),
            View(view.devices[:, node], view.slots[:, node]),
            idle=View(idle.devices[:, node], idle.slots[:, node]) if soon else None,
            warm=state.warm.by_device(node, fact.devices) if fact.mig_model else (),
            tasks=tasks,
        )
        if choice is None:
            return None
        return Footprint(node, choice.devices, choice.milli, host, choice.slots, counted)

    def _hardware(self, node: int, fact: NodeSet) -> Hardware:
        """``hardware_of`` a node, kept as long as it stays what it is."""
        known = self.state.memory.hardware.get(node)
        if known is None or known[0] is not fact:
            known = self.state.memory.hardware[node] = fact, hardware_of(fact)
        return known[1]
