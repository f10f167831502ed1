"""Eligibility: the nodes on which a task may run, whatever their capacity.

Labels, taints and models of nodes become columns of small codes, so that a condition is one vector
comparison per value. Columns follow the nodes that changed; masks are made again when asked for
after a change (``NodeColumns.version``) and shared by all requests with equal conditions. A mask
leaves out nodes that take no new work, since a task without needs would fit there too.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.devices.classes import NO_GPU, GpuForm, GpuKind, gpu_kind
from carrel_scheduler.core.devices.device_choice import profile_on
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.mig import MODELS, model_code
from carrel_scheduler.core.nodes.nodes import NodeColumns
from carrel_scheduler.core.requests import HOST, NodeConstraint, Request

NO_VALUE = -1
SHARES = GpuKind(GpuForm.SHARE)
WHOLE = GpuKind(GpuForm.WHOLE)
ANY_TAINT = "*"


Codes = npt.NDArray[np.uint8]
Value = TypeVar("Value", str, frozenset[str])


@dataclass(slots=True)
class _Codes(Generic[Value]):
    """An attribute of all nodes as small integers: ``column[slot]`` is the number of its value."""

    column: Counts
    numbers: dict[Value, int] = field(default_factory=dict)

    def widen(self, width: int) -> None:
        self.column = np.append(self.column, _no_values(width - len(self.column)))

    def put(self, slot: int, value: Value | None) -> None:
        if value is None:
            self.column[slot] = NO_VALUE
        else:
            self.column[slot] = self.numbers.setdefault(value, len(self.numbers))


class Eligible:
    """Masks over nodes by condition."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._version = -1
        self._facts: list[NodeSet | None] = []
        self._labels: dict[str, _Codes[str]] = {}
        self._taints: _Codes[frozenset[str]] = _Codes(np.zeros(0, np.int64))
        self._models: Codes = np.zeros(0, np.uint8)
        self._masks: dict[tuple[object, ...], Bools] = {}
        self._ever: dict[tuple[object, ...], Bools] = {}
        self._preferences: dict[tuple[object, ...], Counts] = {}

    def mask(self, where: NodeConstraint) -> Bools:
        """(N,) the nodes that take new work and satisfy the conditions. Do not change it."""
        self._follow()
        key = (where.nodes, where.labels, where.tolerations)
        found = self._masks.get(key)
        if found is None:
            found = self._masks[key] = self._nodes.schedulable & self._suitable(where)
        return found

    def of(self, request: Request) -> Bools:
        """(N,) ``mask`` of the request's conditions, on nodes whose GPUs can serve its form."""
        self._follow()
        key = self.key(request)
        found = self._masks.get(key)
        if found is None:
            base = self.mask(request.where)
            found = self._masks[key] = base & self._serving(gpu_kind(request))
        return found

    def ever(self, request: Request) -> Bools:
        """(N,) like ``of``, with nodes that take no new work at present. Do not change it."""
        self._follow()
        key = self.key(request)
        found = self._ever.get(key)
        if found is None:
            present = np.array([bool(name) for name in self._nodes.names], np.bool_)
            found = self._suitable(request.where) & self._serving(gpu_kind(request))
            found[: len(present)] &= present
            found[len(present) :] = False
            self._ever[key] = found
        return found

    def labelled(self, key: str, value: str) -> Bools:
        """(N,) the nodes whose label of this key has this value."""
        self._follow()
        return self._labelled(key, frozenset((value,)))

    def models(self, nodes: Counts | None = None) -> Codes:
        """Numbers of MIG models (``mig.model_code``), 0 without MIG; of all nodes or of some."""
        self._follow()
        return self._models if nodes is None else self._models.take(nodes)

    def key(self, request: Request) -> tuple[object, ...]:
        """Requests with equal keys have equal masks."""
        where, form = request.where, gpu_kind(request)
        if form.form is GpuForm.WHOLE and self._nodes.instances_only.any():
            form = WHOLE
        elif form.form in (GpuForm.NONE, GpuForm.WHOLE):
            form = NO_GPU
        elif form.form is GpuForm.SHARE:
            form = SHARES
        return (where.nodes, where.labels, where.tolerations, form)

    def preferred(self, where: NodeConstraint) -> Counts | None:
        """(N,) satisfied preferences of each node, below 0 where avoided; ``None`` without any."""
        if not (where.preferred or where.avoided):
            return None
        self._follow()
        preferences = (where.preferred, where.avoided)
        found = self._preferences.get(preferences)
        if found is None:
            found = np.zeros(len(self._nodes.schedulable), np.int64)
            for key, values in where.preferred:
                found += self._labelled(key, values)
            if where.avoided:
                found -= (len(where.preferred) + 1) * self._named(where.avoided)
            self._preferences[preferences] = found
        return found

    def _serving(self, kind: GpuKind) -> Bools:
        """Nodes whose GPUs can serve the form at all; shares are not used where MIG is."""
        nodes = self._nodes
        if kind.form is GpuForm.SHARE:
            return ~nodes.mig
        if kind.form is GpuForm.MEMORY:
            plain = ~nodes.mig & (nodes.gpu_memory > 0)
            return plain | self._dividing(kind) if kind.devices == 1 else plain
        if kind.form is GpuForm.MIG:
            return self._dividing(kind)
        if kind.form is GpuForm.WHOLE:
            return ~nodes.instances_only
        return np.ones(len(nodes.schedulable), np.bool_)

    def _dividing(self, kind: GpuKind) -> Bools:
        """(N,) the nodes whose GPU model has a MIG profile that serves the need."""
        models = [code for code, model in enumerate(MODELS.values(), 1) if profile_on(kind, model)]
        return np.isin(self._models, models)

    def _suitable(self, where: NodeConstraint) -> Bools:
        mask = self._tolerated(where.tolerations)
        if where.nodes is not None:
            mask &= self._named(where.nodes)
        for key, values in where.labels:
            mask &= self._labelled(key, values)
        return mask

    def _named(self, names: frozenset[str]) -> Bools:
        mask = np.zeros(len(self._nodes.schedulable), np.bool_)
        slots = self._nodes.slots
        mask[[slots[name] for name in names if name in slots]] = True
        return mask

    def _labelled(self, key: str, values: frozenset[str]) -> Bools:
        if key == HOST:
            return self._named(values)
        codes = self._labels.get(key)
        if codes is None:
            codes = self._labels[key] = _Codes(_no_values(len(self._nodes.schedulable)))
            for slot, fact in enumerate(self._facts):
                codes.put(slot, _label(fact, key))
        return _any_of(codes, values)

    def _tolerated(self, tolerations: frozenset[str]) -> Bools:
        allowed = [taints for taints in self._taints.numbers if _tolerates(tolerations, taints)]
        return _any_of(self._taints, allowed)

    def _follow(self) -> None:
        """Bring the columns up to date with the nodes that changed."""
        nodes = self._nodes
        if self._version == nodes.version:
            return
        self._version = nodes.version
        self._masks.clear()
        self._ever.clear()
        self._preferences.clear()
        width = len(nodes.schedulable)
        self._models = np.append(self._models, np.zeros(width - len(self._models), np.uint8))
        self._taints.widen(width)
        for codes in self._labels.values():
            codes.widen(width)
        self._facts += [None] * (len(nodes.facts) - len(self._facts))
        for slot, (old, new) in enumerate(zip(self._facts, nodes.facts, strict=True)):
            if old is not new:
                self._facts[slot] = new
                self._taints.put(slot, None if new is None else new.taints)
                self._models[slot] = model_code(new.mig_model) if new and new.mig_model else 0
                for key, codes in self._labels.items():
                    codes.put(slot, _label(new, key))


def _no_values(width: int) -> Counts:
    return np.full(width, NO_VALUE, np.int64)


def _any_of(codes: _Codes[Value], values: Iterable[Value]) -> Bools:
    """(N,) where the value is one of ``values``, an iterable."""
    mask = np.zeros(len(codes.column), np.bool_)
    for value in values:
        number = codes.numbers.get(value)
        if number is not None:
            mask |= codes.column == number
    return mask


def _label(fact: NodeSet | None, key: str) -> str | None:
    if fact is None:
        return None
    return next((value for name, value in fact.labels if name == key), None)


def _tolerates(tolerations: frozenset[str], taints: frozenset[str]) -> bool:
    if ANY_TAINT in tolerations:
        return True
    return all(t in tolerations or t.partition("=")[0] in tolerations for t in taints)
