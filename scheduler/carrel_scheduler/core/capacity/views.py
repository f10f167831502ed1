"""Capacity for a class of tasks by resource, in the views that reasons are derived from.

Per view and class the answer is kept by resource, (N,) tasks per node, so that "would it fit if
it did not ask for this" is a minimum over the others. Resources are numbered as in quotas (0 GPU,
1 CPU, 2 memory), then extended ones: the host row plus one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np

from carrel_scheduler.core.capacity.eligibility import Eligible
from carrel_scheduler.core.devices import device_choice
from carrel_scheduler.core.devices.classes import Classes, GpuForm, GpuKind
from carrel_scheduler.core.layers import Bools, Counts, Layer
from carrel_scheduler.core.nodes.free_capacity import FreeCapacity
from carrel_scheduler.core.nodes.nodes import NodeColumns
from carrel_scheduler.core.resources import MILLI

GPU = 0


class CapacityView(Enum):
    """The kind of free capacity that is looked at."""

    BEFORE = auto()
    """Idle when the cycle began."""
    IDLE = auto()
    """Idle after everything that the cycle decided."""
    SOON = auto()
    """Idle, and what is being released."""
    UNPROMISED = auto()
    """Idle, also what is held for others."""
    EMPTY = auto()
    """All of the nodes that take new work, if nobody held anything."""
    WHOLE = auto()
    """All that there is, broken, drained and switched off too."""


LASTING = (CapacityView.EMPTY, CapacityView.WHOLE)
"""The views that change with the nodes only."""


@dataclass(frozen=True, slots=True, eq=False)
class FitCounts:
    """Fit counts of one class in one view.

    Attributes:
        mask: (N,) the nodes on which it may run.
        by_resource: resource -> (N,) how many tasks fit as far as this resource goes.
    """

    mask: Bools
    by_resource: dict[int, Counts]

    def counts(self, resources: Sequence[int] | None = None) -> Counts:
        """(N,) how many tasks fit that ask for these of the resources only; ``None`` all."""
        wanted = self.by_resource if resources is None else resources
        found = self.mask.astype(np.int64) * device_choice.UNBOUNDED
        for resource in wanted:
            found = np.minimum(found, self.by_resource[resource])
        return found * self.mask

    def total(self, resources: Sequence[int] | None = None) -> int:
        """The number of tasks that fit on all nodes."""
        return int(self.counts(resources).sum())


class CapacityViews:
    """All capacity views of one cycle, each computed on first use."""

    def __init__(
        self,
        nodes: NodeColumns,
        classes: Classes,
        eligible: Eligible,
        free: FreeCapacity | None = None,
        lasting: "Callable[[], CapacityViews] | None" = None,
    ) -> None:
        """Compute nothing before a view is asked for.

        Args:
            nodes: the nodes.
            classes: of tasks.
            eligible: which nodes will do for whom.
            free: of the cycle; without it only the views ``EMPTY`` and ``WHOLE`` work.
            lasting: these two views of the same nodes, where they outlast the cycle.
        """
        self._nodes, self._classes, self._eligible, self._free = nodes, classes, eligible, free
        self._lasting = lasting
        self._layers: dict[CapacityView, Layer] = {}
        self._parts: dict[tuple[CapacityView, int], FitCounts] = {}
        self._totals: dict[tuple[CapacityView, int, tuple[int, ...] | None], int] = {}
        self._gpus: dict[tuple[CapacityView, GpuKind], Counts] = {}
        self._hosts: dict[tuple[CapacityView, int, int], Counts] = {}
        self._asked: dict[int, dict[int, int]] = {}
        self._same: dict[CapacityView, CapacityView] = {}

    @property
    def looks(self) -> int:
        """The number of computed pairs of view and class."""
        return len(self._parts)

    def layer(self, view: CapacityView) -> Layer:
        """The free in a view."""
        if self._lasting is not None and view in LASTING:
            return self._lasting().layer(view)
        view = self._plain(view)
        found = self._layers.get(view)
        if found is None:
            found = self._layers[view] = self._make(view)
        return found

    def parts(self, view: CapacityView, cls: int) -> FitCounts:
        """Counts of one class in one view, by resource; computed on first use."""
        if self._lasting is not None and view in LASTING:
            return self._lasting().parts(view, cls)
        key = (self._plain(view), cls)
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = self._look(*key)
        return found

    def total(self, view: CapacityView, cls: int, resources: tuple[int, ...] | None = None) -> int:
        """The number of tasks of a class that fit on all nodes, counting only these resources."""
        if self._lasting is not None and view in LASTING:
            return self._lasting().total(view, cls, resources)
        key = (self._plain(view), cls, resources)
        found = self._totals.get(key)
        if found is None:
            found = self._totals[key] = self.parts(view, cls).total(resources)
        return found

    def amounts(self, view: CapacityView, resource: int, cls: int | None = None) -> Counts:
        """(N,) of a resource on each node; ``cls``: of GPUs only those that will do for a class."""
        layer = self.layer(view)
        if resource == GPU:
            types = None if cls is None else self._classes.kinds[cls].types
            devices = self._nodes.of_types(types, layer.devices)
            gpus: Counts = devices.sum(axis=0, dtype=np.int64)
            return gpus
        host: Counts = layer.host[resource - 1]
        return host

    def pieces(self, view: CapacityView, resource: int, cls: int) -> Counts:
        """``amounts``, of GPUs only what one task can use: whole devices, or one device's rest."""
        kind = self._classes.kinds[cls]
        form = kind.form
        if resource != GPU or form in (GpuForm.NONE, GpuForm.MIG):
            return self.amounts(view, resource, cls)
        devices = self._nodes.of_types(kind.types, self.layer(view).devices)
        if form is GpuForm.WHOLE:
            found: Counts = (devices >= MILLI).sum(axis=0, dtype=np.int64) * MILLI
            return found
        most = kind.devices
        best: Counts = np.sort(devices, axis=0)[-most:].sum(axis=0, dtype=np.int64)
        return best

    def asked(self, cls: int) -> dict[int, int]:
        """Resource -> what one task asks for, GPUs first; GPUs as they count against quotas."""
        found = self._asked.get(cls)
        if found is None:
            classes = self._classes
            found = {GPU: classes.amounts(cls)[0]} if classes.takes_gpu(cls) else {}
            for row, amount in enumerate(classes.host(cls)):
                if amount:
                    found[row + 1] = amount
            self._asked[cls] = found
        return found

    def _look(self, view: CapacityView, cls: int) -> FitCounts:
        request, kind = self._classes.request(cls), self._classes.kinds[cls]
        ever = view is CapacityView.WHOLE
        mask = self._eligible.ever(request) if ever else self._eligible.of(request)
        found: dict[int, Counts] = {}
        if kind.form is not GpuForm.NONE:
            found[GPU] = self._by_gpu(view, kind)
        for row, amount in enumerate(self._classes.host(cls)):
            if amount:
                found[row + 1] = self._by_host(view, row, amount)
        return FitCounts(mask, found)

    def _by_gpu(self, view: CapacityView, kind: GpuKind) -> Counts:
        found = self._gpus.get((view, kind))
        if found is None:
            layer = self.layer(view)
            memory, models = self._nodes.gpu_memory, self._eligible.models()
            devices = self._nodes.of_types(kind.types, layer.devices)
            found = device_choice.capacity(kind, devices, layer.slots, memory, models)
            self._gpus[view, kind] = found
        return found

    def _by_host(self, view: CapacityView, row: int, amount: int) -> Counts:
        found = self._hosts.get((view, row, amount))
        if found is None:
            found = self._hosts[view, row, amount] = self.layer(view).host[row] // amount
        return found

    def _plain(self, view: CapacityView) -> CapacityView:
        """A view that holds the same as this one, the same for all that do."""
        found = self._same.get(view)
        if found is None:
            found = self._same[view] = self._equal_to(view)
        return found

    def _equal_to(self, view: CapacityView) -> CapacityView:
        nodes, free = self._nodes, self._free
        if view is CapacityView.WHOLE:
            there = np.arange(len(nodes.usable))[:, None] < nodes.devices
            present = np.array([fact is not None for fact in nodes.facts], np.bool_)
            works = bool(nodes.schedulable[: len(present)][present].all())
            return CapacityView.EMPTY if works and bool((nodes.usable == there).all()) else view
        if free is None or view in (CapacityView.EMPTY, CapacityView.IDLE):
            return view
        if view is CapacityView.SOON:
            coming = free.releasing.devices.any() or free.releasing.host.any()
            return view if coming else CapacityView.IDLE
        if view is CapacityView.BEFORE:
            return view if free.log else CapacityView.IDLE
        held = free.reserved.devices.any() or free.reserved.host.any()
        return view if held else CapacityView.IDLE

    def _make(self, view: CapacityView) -> Layer:
        nodes = self._nodes
        if view in (CapacityView.EMPTY, CapacityView.WHOLE):
            return self._full(working=view is CapacityView.EMPTY)
        if self._free is None:
            raise RuntimeError("no cycle to look at")
        if view is CapacityView.BEFORE:
            return FreeCapacity(nodes).idle
        if view is CapacityView.UNPROMISED:
            free, is_open = self._free.free, self._free.open
            host = np.maximum(free.host, 0) * nodes.schedulable
            return Layer(free.devices * is_open, host, free.slots * is_open)
        return self._free.idle if view is CapacityView.IDLE else self._free.soon

    def _full(self, *, working: bool) -> Layer:
        nodes = self._nodes
        rows = np.arange(len(nodes.usable))[:, None]
        there = rows < nodes.devices
        if working:
            there = there & nodes.usable & nodes.schedulable
        slots = nodes.empty_slots() * there
        host = nodes.capacity * nodes.schedulable if working else nodes.capacity
        return Layer((there * MILLI).astype(np.int16), host, slots)
