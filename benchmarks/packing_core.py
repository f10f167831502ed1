"""The production policy on openb: nodes chosen by the core's chooser, room kept in its columns."""

from carrel_scheduler.decision.capacity import Capacity
from carrel_scheduler.decision.choose import Chooser
from carrel_scheduler.decision.classes import Classes
from carrel_scheduler.decision.device_choice import View, choose, hardware_of
from carrel_scheduler.decision.eligible import Eligible
from carrel_scheduler.decision.events import NodeSet
from carrel_scheduler.decision.layers import Footprint
from carrel_scheduler.decision.nodes import NodeColumns
from carrel_scheduler.decision.requests import Request


class CorePolicy:
    """Places one pod at a time."""

    def __init__(self, nodes: list[NodeSet]) -> None:
        self._nodes = NodeColumns()
        self._nodes.reserve(len(nodes), max(node.devices for node in nodes))
        for node in nodes:
            self._nodes.set(node)
        self._classes = Classes(self._nodes)
        eligible = Eligible(self._nodes)
        self._capacity = Capacity(self._classes, self._nodes, eligible)
        self._chooser = Chooser(self._classes, self._nodes, eligible)
        self._known: set[int] = set()

    def place(self, pod: Request) -> Footprint | None:
        """Where the pod went, or ``None`` when it does not fit."""
        cls, view = self._classes.intern(pod), self._nodes.free
        if cls not in self._known:
            self._known.add(cls)
            self._classes.retain(cls)
        self._chooser.arrived((cls,))
        self._capacity.sync(view)
        node = self._chooser.pick(cls, self._capacity.column(cls), view)
        if node < 0:
            return None
        place = self._footprint(cls, node)
        view.subtract(place)
        self._capacity.mark(node)
        return place

    def finish(self, place: Footprint) -> None:
        """The pod placed there ended."""
        self._nodes.free.add(place)
        self._capacity.mark(place.node)
        self._chooser.ended()

    def _footprint(self, cls: int, node: int) -> Footprint:
        view, kind = self._nodes.free, self._classes.kinds[cls]
        device = self._chooser.value.device(cls, view, node)
        if device >= 0:
            return Footprint(node, (device,), kind.amount, self._classes.host(cls))
        room = View(view.devices[:, node], view.slots[:, node])
        found = choose(kind, hardware_of(self._nodes.fact(node)), room)
        if found is None:
            raise RuntimeError(f"{self._nodes.names[node]} was chosen without room")
        return Footprint(node, found.devices, found.milli, self._classes.host(cls))
