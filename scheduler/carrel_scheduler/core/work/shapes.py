"""Shapes: workloads of equal structure and requests share one, and everything derived from it.

Thousands of waiting workloads are a few hundred shapes, so whatever depends on the shape only is
computed once, and what failed for a shape need not be tried for its next workload.
"""

from dataclasses import dataclass, replace

from carrel_scheduler.core.devices.classes import Classes
from carrel_scheduler.core.events import WorkloadQueued
from carrel_scheduler.core.gangs import Group, leaves
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import Triple, added
from carrel_scheduler.core.work.gang_steps import Structure, first_step, structure_of


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """The structure and requests that equal workloads share.

    Attributes:
        id: number of the shape, in the order of first appearance.
        group: the tree of groups.
        structure: what the steps of the tree need.
        requests, classes, amounts: of each task; amounts in GPU thousandths, millicores and MiB.
        leaf_of: the leaf of each task.
        kinds: each of the classes once, ascending.
        total: amounts of all tasks.
        first_step: indices of the tasks with which a fresh workload starts; ``first``: their sum.
        alike: all tasks are alike.
        plain: all tasks are alike, one group without a level, and start together.
        elastic: some tasks are surplus.
        levelled: a group asks for a level of a topology.
        bound: where some tasks lie depends on where others do: a level, or members apart.
        apart: a label key on which the members differ, or empty.
    """

    id: int
    group: Group
    structure: Structure
    requests: tuple[Request, ...]
    classes: tuple[int, ...]
    amounts: tuple[Triple, ...]
    leaf_of: tuple[int, ...]
    kinds: tuple[int, ...]
    total: Triple
    first_step: tuple[int, ...]
    first: Triple
    alike: bool
    plain: bool
    elastic: bool
    levelled: bool
    bound: bool
    apart: str

    @property
    def goes_whole(self) -> bool:
        """Whether all tasks are stopped for others, or none."""
        return not self.elastic or self.structure.whole

    @property
    def tasks(self) -> int:
        """The number of tasks."""
        return len(self.classes)

    @property
    def cls(self) -> int:
        """The class of the first task, which is that of all tasks of a plain shape."""
        return self.classes[0]


class Shapes:
    """All shapes, by structure and requests."""

    def __init__(self, classes: Classes) -> None:
        self._classes = classes
        self._known: dict[object, Shape] = {}

    def of(self, spec: WorkloadQueued) -> Shape:
        """The shape of a workload; equal workloads get the same object."""
        if spec.gang is None:
            key: object = (spec.request, spec.tasks)
        else:
            key = spec.gang
        shape = self._known.get(key)
        if shape is None:
            shape = self._known[key] = self._new(spec)
        return shape

    def renewed(self) -> dict[int, Shape]:
        """Shapes whose amounts are others now, by id: known nodes have come, changed or gone."""
        found: dict[int, Shape] = {}
        on_nodes = [cls for cls in range(len(self._classes)) if self._classes.on_nodes(cls)]
        for key, shape in self._known.items():
            if not set(on_nodes).intersection(shape.classes):
                continue
            amounts = tuple(self._classes.amounts(cls) for cls in shape.classes)
            if amounts != shape.amounts:
                first = added(amounts[index] for index in shape.first_step)
                total = added(amounts)
                new = replace(shape, amounts=amounts, total=total, first=first)
                found[shape.id] = self._known[key] = new
        return found

    def _new(self, spec: WorkloadQueued) -> Shape:
        group = spec.gang or Group(requests=(spec.request,) * spec.tasks)
        parts = leaves(group)
        requests = tuple(request for leaf in parts for request in leaf.requests)
        classes = tuple(self._classes.intern(request) for request in requests)
        amounts = tuple(self._classes.amounts(cls) for cls in classes)
        structure = structure_of(group)
        elastic = _is_elastic(group)
        alike = len(set(classes)) == 1
        step = first_step(structure)
        apart = requests[0].where.apart if alike else ""
        return Shape(
            id=len(self._known),
            group=group,
            structure=structure,
            requests=requests,
            classes=classes,
            amounts=amounts,
            leaf_of=tuple(number for number, leaf in enumerate(parts) for _ in leaf.requests),
            kinds=tuple(sorted(set(classes))),
            total=added(amounts),
            first_step=step,
            first=added(amounts[index] for index in step),
            alike=alike,
            plain=alike and not elastic and group.is_leaf and group.level is None and not apart,
            elastic=elastic,
            levelled=_has_level(group),
            bound=_has_level(group) or any(request.where.apart for request in requests),
            apart=apart,
        )


def _has_level(group: Group) -> bool:
    return group.level is not None or any(_has_level(child) for child in group.groups)


def _is_elastic(group: Group) -> bool:
    if group.is_leaf:
        return group.least < len(group.requests)
    return group.least < len(group.groups) or any(_is_elastic(child) for child in group.groups)
