"""Nodes and requests for tests of capacity and choice, and the whole set of columns over them."""

from dataclasses import dataclass

from carrel_scheduler.core.capacity.capacity import Capacity
from carrel_scheduler.core.capacity.eligibility import Eligible
from carrel_scheduler.core.devices.classes import Classes
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.nodes.free_capacity import FreeCapacity
from carrel_scheduler.core.nodes.nodes import NodeColumns
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.scoring.chooser import Chooser
from carrel_scheduler.core.settings import DEFAULTS, Settings

GIB = 1024


def node(name: str, devices: int = 8, **facts: object) -> NodeSet:
    """A node with 64 cores and 512 GiB unless told otherwise."""
    usual: dict[str, object] = {"cpu_milli": 64_000, "memory_mib": 512 * GIB}
    return NodeSet(name, devices, **{**usual, **facts})  # type: ignore[arg-type]


@dataclass
class Cluster:
    """The columns that capacity and choice of nodes need."""

    nodes: NodeColumns
    classes: Classes
    eligible: Eligible
    capacity: Capacity
    chooser: Chooser

    def waiting(self, request: Request) -> int:
        """The class of a request, with one task waiting."""
        cls = self.classes.intern(request)
        self.classes.retain(cls)
        return cls

    def take(
        self, name: str, devices: tuple[int, ...] = (), share: int = 1000, cpu: int = 0
    ) -> None:
        """A task holds something of a node."""
        slot = self.nodes.slot(name)
        self.nodes.free.subtract(Footprint(slot, devices, share, (cpu, 0)))
        self.capacity.mark(slot)

    def room(self) -> FreeCapacity:
        """The room of now; capacity follows it."""
        room = FreeCapacity(self.nodes)
        self.capacity.sync(room.idle)
        return room

    def counts(self, request: Request) -> dict[str, int]:
        """The number of tasks that fit, by name of node; nodes without room are left out."""
        cls = self.classes.intern(request)
        found = self.capacity.counts(self.room().idle, cls).tolist()
        return {name: found[slot] for name, slot in self.nodes.slots.items() if found[slot]}

    def pick(self, request: Request) -> str | None:
        """The node that one task would get."""
        cls = self.classes.intern(request)
        room = self.room()
        slot = self.chooser.pick(cls, self.capacity.counts(room.idle, cls), room.idle)
        return None if slot < 0 else self.nodes.names[slot]

    def spread(self, request: Request, tasks: int) -> list[tuple[str, int]] | None:
        """The nodes that so many tasks would get."""
        cls = self.classes.intern(request)
        room = self.room()
        counts = self.capacity.counts(room.idle, cls)
        found = self.chooser.spread(cls, tasks, counts, room.idle)
        return None if found is None else [(self.nodes.names[slot], k) for slot, k in found]


def cluster(*nodes: NodeSet, settings: Settings = DEFAULTS) -> Cluster:
    """The columns over these nodes."""
    columns = NodeColumns()
    for one in nodes:
        columns.set(one)
    classes = Classes(columns)
    eligible = Eligible(columns)
    capacity = Capacity(classes, columns, eligible)
    return Cluster(
        columns, classes, eligible, capacity, Chooser(classes, columns, eligible, settings)
    )
