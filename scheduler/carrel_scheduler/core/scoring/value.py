"""Value of a node's capacity for typical requests, and what a placement takes of it.

The value of a node with free CPU c and free thousandths L_j of its GPUs, over typical needs m:

    V = sum of w_m (usable_m + a size_m slots_m)
    usable_m = sum of L_j with L_j >= g_m for a share; all whole GPUs if they are enough
    slots_m  = min(how many such needs fit by GPU, c / c_m)     both 0 when c < c_m
    w_m = p_m ((F + e C) / (size_m S_m + e C))^b,   S_m = sum of slots_m over the nodes

with F the free and C the existing thousandths: what only few nodes can still hold is dear, so
flexible work keeps away from there. It is the gradient of expected log capacity (b = 1); the first
term is that of fragmentation gradient descent (Weng et al., USENIX ATC'23). The loss of a placement
is V before - V after + pack x (free GPU of the node before), in steps of ``QUANTUM``: differences
below one step are left to bin packing. Packing and a smaller a matter only where capacity comes
back, so both follow the part of arrivals that have ended.

CPU is counted in steps here, so V is a sum of table look-ups: one per distinct size of share and
one for all whole needs. Needs are learned from arrivals (``ShapesSeen``); prices and tables are
computed again after 32, 64, ... and every ``REFRESH`` arrivals (later, with every sixteenth
more), from the present state. Losses are kept per need and node until one of them changes.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.capacity.eligibility import Eligible
from carrel_scheduler.core.devices.classes import Classes, GpuForm
from carrel_scheduler.core.layers import CPU, Bools, Counts, Layer
from carrel_scheduler.core.nodes.nodes import NodeColumns
from carrel_scheduler.core.requests import NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.scoring.value_states import States
from carrel_scheduler.core.scoring.value_tables import (
    CPU_STEP,
    Floats,
    Need,
    NeedTables,
    TypicalNeed,
)

FIRST = 32
REFRESH = 1_000
REFRESH_PART = 16
"""Once many arrivals were seen, so many parts of them more change little."""
SLOTS_PART, SLOTS_PART_RETURNING = 0.7, 0.4
PACK_RETURNING = 0.07
STRENGTH = 3.0
BOUND = 0.0005
COVER = 0.98
HALF_LIFE = 20_000
FADE_EVERY = 1_000
FADE = 0.5 ** (FADE_EVERY / HALF_LIFE)
Memory = tuple[tuple[int, tuple[float, ...]], int, int, "_NeedPrices | None"]


class ShapesSeen:
    """Counts of arrivals by need: CPU, whole devices, thousandths per device, where it may run.

    CPU is rounded up to a step, so that look-alikes are one. Counts fade: a need that came
    ``HALF_LIFE`` arrivals ago counts half. Typical are the needs with the most GPU demand that
    make up ``COVER`` of it, so rare large ones stay and the long tail does not cost. Work without
    GPUs is not among them: it is GPUs that must stay useful.
    """

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._of_class: dict[int, tuple[int, int]] = {}
        self._numbers: dict[tuple[int, int, int, Request], int] = {}
        self._needs: list[tuple[int, int, int, Request]] = []
        self._counts: list[float] = []
        self.arrivals = 0

    def seen(self, class_id: int, tasks: int) -> None:
        """Count tasks of a class that were queued; they count as one decision each."""
        found = self._of_class.get(class_id)
        if found is None:
            found = self._of_class[class_id] = self._need(class_id)
        number, times = found
        if number >= 0:
            self._counts[number] += tasks * times
        before = self.arrivals
        self.arrivals += tasks
        for _ in range(self.arrivals // FADE_EVERY - before // FADE_EVERY):
            self._counts = [count * FADE for count in self._counts]

    def typical(self) -> list[TypicalNeed]:
        """The needs with the most demand, sorted by size of share, then in order of appearance."""
        demand = [
            count * max(need[1], 1) * need[2]
            for need, count in zip(self._needs, self._counts, strict=True)
        ]
        wanted, covered = COVER * sum(demand), 0.0
        kept: list[int] = []
        for number in sorted(range(len(demand)), key=lambda n: (-demand[n], n)):
            if covered >= wanted:
                break
            kept.append(number)
            covered += demand[number]
        total = sum(self._counts[number] for number in kept)
        kept.sort(key=lambda number: (self._needs[number][2], self._needs[number][1], number))
        return [
            TypicalNeed(*self._needs[number], part=self._counts[number] / total) for number in kept
        ]

    def memory(self) -> tuple[int, tuple[float, ...]]:
        """A snapshot of the counts, for ``recall``."""
        return self.arrivals, tuple(self._counts)

    def recall(self, memory: tuple[int, tuple[float, ...]]) -> None:
        """Restore a snapshot; needs that were added since keep their numbers."""
        self.arrivals, counts = memory
        self._counts = [*counts, *[0.0] * (len(self._needs) - len(counts))]

    def _need(self, class_id: int) -> tuple[int, int]:
        """The number of the need of a class, -1 without GPUs, and how many of it a task is."""
        kind = self._classes.kinds[class_id]
        if kind.form is GpuForm.NONE:
            return -1, 0
        request = self._classes.request(class_id)
        cpu = -(-request.cpu_milli // CPU_STEP) * CPU_STEP
        each = self._classes.amounts(class_id)[0] // kind.devices
        whole, share = (kind.amount, MILLI) if kind.form is GpuForm.WHOLE else (0, each)
        if share == MILLI and not whole:
            whole = 1
        where = NodeConstraint(labels=request.where.labels, tolerations=request.where.tolerations)
        place = Request(
            share_milli=int(kind.form is GpuForm.SHARE),
            gpu_memory_mib=request.gpu_memory_mib,
            mig_profile=request.mig_profile,
            where=where,
        )
        key = (cpu // kind.devices, whole, share, place)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._needs)
            self._needs.append(key)
            self._counts.append(0.0)
        return number, kind.devices


@dataclass(frozen=True, slots=True, eq=False)
class _NeedPrices:
    """Typical needs and what they weigh, as of one refresh, for nodes of so many devices."""

    devices: int
    tables: NeedTables
    price: Floats
    slots_part: float
    pack: float


class Value:
    """Losses of value by class and node."""

    def __init__(self, classes: Classes, nodes: NodeColumns, eligible: Eligible) -> None:
        self._classes, self._nodes, self._eligible = classes, nodes, eligible
        self._seen = ShapesSeen(classes)
        self._ended = 0
        self._due = FIRST
        self._prices: _NeedPrices | None = None
        self._states: States | None = None
        self._needs: dict[int, Need] = {}
        self._made_for: tuple[object, int] = (None, -1)
        self._allowed_for: tuple[NeedTables, int, Bools] | None = None

    def seen(self, class_id: int, tasks: int = 1) -> None:
        """Tasks of a class were queued."""
        self._seen.seen(class_id, tasks)
        if self._seen.arrivals >= self._due:
            self._refresh()

    def ended(self, tasks: int = 1) -> None:
        """Count tasks that ended for good and released their capacity."""
        self._ended += tasks

    @property
    def prices(self) -> object:
        """The current prices; a new object whenever they change."""
        return self._prices

    def memory(self) -> Memory:
        """A snapshot of what was learned, for ``recall``."""
        return self._seen.memory(), self._ended, self._due, self._prices

    def recall(self, memory: Memory) -> None:
        """Restore a snapshot."""
        seen, self._ended, self._due, self._prices = memory
        self._seen.recall(seen)

    def knows(self, class_id: int) -> bool:
        """Whether there is enough data to estimate losses; never for shares of several devices.

        Nor while there are nodes of more devices than when prices were found.
        """
        prices = self._prices
        if prices is None or prices.devices < len(self._nodes.usable):
            return False
        return self._classes.kinds[class_id].devices == 1

    def gains(self, class_id: int, view: Layer, nodes: Counts) -> npt.NDArray[np.int32]:
        """Minus the loss of placing a task on each node, in steps; larger is better.

        Args:
            class_id: of the task.
            view: the capacity.
            nodes: (n,) slots on which it fits there.

        Returns:
            (n,)

        Raises:
            LookupError: not known yet, see ``knows``.
        """
        states = self._current(view)
        states.follow(view, nodes)
        return states.gains(self._need(class_id), nodes)

    def device(self, class_id: int, view: Layer, node: int) -> int:
        """The device of a node for a share of one device, -1 without an opinion.

        The one after which the node is worth most; of equal ones the fullest, then the first.
        """
        kind = self._classes.kinds[class_id]
        if kind.form is not GpuForm.SHARE or not self.knows(class_id):
            return -1
        return self._current(view).device(self._need(class_id), node, view)

    def _need(self, class_id: int) -> Need:
        known = self._needs.get(class_id)
        if known is None:
            kind, cpu = self._classes.kinds[class_id], self._classes.request(class_id).cpu_milli
            if kind.form not in (GpuForm.NONE, GpuForm.WHOLE, GpuForm.SHARE):
                return (0, self._classes.amounts(class_id)[0], cpu)
            if kind.form is GpuForm.SHARE:
                known = self._needs[class_id] = 0, self._classes.amounts(class_id)[0], cpu
                return known
            known = self._needs[class_id] = kind.amount, 0, cpu
        return known

    def _refresh(self) -> None:
        """Estimate needs and prices again, from the capacity that the events left."""
        arrivals, nodes = self._seen.arrivals, self._nodes
        later = arrivals + max(REFRESH, arrivals // REFRESH_PART)
        self._due = 2 * self._due if 2 * self._due < REFRESH else later
        typical = self._seen.typical()
        if not typical or not nodes.devices.any():
            return
        before = None if self._prices is None else self._prices.tables
        tables = NeedTables(typical, len(nodes.usable), int(nodes.capacity[CPU].max()), before)
        open_devices = nodes.free.devices * (nodes.usable & nodes.schedulable)
        cpu = np.maximum(nodes.free.host[CPU], 0) * nodes.schedulable // tables.step
        cpu = np.minimum(cpu, tables.steps - 1)
        held = tables.held(tables.sums(open_devices), cpu, self._allowed(tables))
        size = np.array([need.milli for need in typical])
        part = np.array([need.part for need in typical])
        bound = BOUND * MILLI * int(nodes.devices.sum())
        free = float(open_devices.sum(dtype=np.int64))
        price = part * ((free + bound) / (held * size + bound)) ** STRENGTH
        returning = min(1.0, self._ended / arrivals)
        slots_part = SLOTS_PART + returning * (SLOTS_PART_RETURNING - SLOTS_PART)
        devices = len(nodes.usable)
        self._prices = _NeedPrices(devices, tables, price, slots_part, returning * PACK_RETURNING)

    def _allowed(self, tables: NeedTables) -> Bools:
        """(N, M) which needs each node may hold."""
        known = self._allowed_for
        if known is None or known[0] is not tables or known[1] != self._nodes.version:
            masks = {need.request: self._eligible.ever(need.request) for need in tables.needs}
            allowed = np.column_stack([masks[need.request] for need in tables.needs])
            known = self._allowed_for = tables, self._nodes.version, allowed
        return known[2]

    def _current(self, view: Layer) -> States:
        """The states for the prices of now and views of this shape."""
        prices = self._prices
        if prices is None:
            raise LookupError("too few arrivals were seen")
        made_for = (prices, self._nodes.version)
        states = self._states
        if states is not None and made_for == self._made_for and states.shape == view.devices.shape:
            return states
        patterns, group = _grouped(self._allowed(prices.tables))
        tables = prices.tables.weighted(patterns * prices.price, prices.slots_part)
        states = States(prices.tables, tables, group, prices.pack, view)
        self._states, self._made_for = states, made_for
        return states


def _grouped(allowed: Bools) -> tuple[Bools, Counts]:
    """The distinct rows of (N, M), and (N,) the index of each row among them."""
    group = np.zeros(len(allowed), np.int64)
    seen: set[bytes] = set()
    for column in allowed.T:
        key = column.tobytes()
        if key not in seen:
            seen.add(key)
            group = np.unique(2 * group + column, return_inverse=True)[1]
    first = np.unique(group, return_index=True)[1]
    return allowed.take(first, 0), group
