"""A whole cluster into an empty state at once: at start-up, and for what is built to be measured.

The result is that of applying the events one by one, except that what is typical among arrivals is
learned from all of them together. Almost everything that runs has one task on a usual node, and
enters the columns together; the rest goes its usual way, also where something is wrong, so that
the first event that contradicts the others is refused as always.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.changes.workloads import check_workload, enter
from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.devices.classes import GpuForm
from carrel_scheduler.core.events import (
    CheckpointSeen,
    Event,
    NodeSet,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    TopologySet,
    UsageSeen,
    WorkloadQueued,
)
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.queues.queues import Sum
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import NEVER_SAVED, JobInfo
from carrel_scheduler.core.work.shapes import Shape
from carrel_scheduler.core.work.tasks import NOBODY

NEVER_DUE = 1 << 62
LEAST_LEARNED = 1000
USUAL_FORMS = (GpuForm.NONE, GpuForm.WHOLE, GpuForm.SHARE)


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of a whole state.

    Attributes:
        topologies, nodes, usage: in any order.
        queues: parents before children.
        workloads: those that run and those that wait.
        placed: tasks that hold room.
        saved: the last checkpoints.
        rest: what else happened to them (stops, ends, promises), in order.
    """

    nodes: Sequence[NodeSet] = ()
    queues: Sequence[QueueSet] = ()
    topologies: Sequence[TopologySet] = ()
    usage: Sequence[UsageSeen] = ()
    workloads: Sequence[WorkloadQueued] = ()
    placed: Sequence[TaskPlaced] = ()
    saved: Sequence[CheckpointSeen] = ()
    rest: Sequence[Event] = ()


def load(state: State, listing: Listing) -> None:
    """Take all of it into an empty state.

    Raises:
        InvalidEvent: something contradicts the rest; what came before it has been taken in.
    """
    most = max((node.devices for node in listing.nodes), default=0)
    state.nodes.reserve(len(listing.nodes), max(1, most))
    _apply(state, (*listing.topologies, *listing.nodes, *listing.queues, *listing.usage))
    state.jobs.reserve(len(listing.workloads))
    state.tasks.reserve(len(listing.placed))
    _apply(state, _Loader(state, listing).run())
    _apply(state, (*listing.saved, *listing.rest))


def _apply(state: State, events: Sequence[Event]) -> None:
    for event in events:
        state.apply(event)


class _Loader:
    """Workloads and their tasks."""

    def __init__(self, state: State, listing: Listing) -> None:
        self._state, self._listing = state, listing
        self._sound: set[int] = set()
        self._classes: dict[int, int | None] = {}
        self._wanted: dict[str, TaskPlaced] = {}
        self._others: list[TaskPlaced] = []
        for event in listing.placed:
            if event.index or event.slots or event.uid in self._wanted:
                self._others.append(event)
            else:
                self._wanted[event.uid] = event

    def run(self) -> list[TaskPlaced]:
        """Enter what is usual; what is left has to be applied one by one."""
        specs, queues, shapes = self._workloads()
        jobs = self._state.jobs.add_many(specs, queues, shapes)
        places = [self._wanted.pop(spec.uid) for spec in specs]
        self._state.version += len(specs)
        if _Places(self._state, jobs, places).enter():
            self._state.version += len(places)
            return [*self._wanted.values(), *self._others]
        for job in jobs:
            self._state.jobs.drop(job)
            enter(self._state, job.spec)
        return [*places, *self._wanted.values(), *self._others]

    def _workloads(self) -> tuple[list[WorkloadQueued], list[int], list[Shape]]:
        """The workloads that are entered together; the others ask for capacity afterwards."""
        state, shapes_of, sound = self._state, self._state.shapes.of, self._sound
        specs: list[WorkloadQueued] = []
        queues: list[int] = []
        shapes: list[Shape] = []
        classes: list[int] = []
        leaf_of = {name: slot for name, slot in state.queues.slots.items() if _is_leaf(state, slot)}
        usual = {name for name, slot in state.nodes.slots.items() if not state.nodes.mig[slot]}
        wanted, seen, class_of = self._wanted, set[str](), self._usual_class
        for spec in self._listing.workloads:
            queue, place = leaf_of.get(spec.project), wanted.get(spec.uid)
            if queue is not None and place is not None and spec.uid not in seen:
                seen.add(spec.uid)
                shape = shapes_of(spec)
                if spec.tasks == 1 and (shape.id not in sound or not spec.uid):
                    check_workload(spec)
                    sound.add(shape.id)
                cls = class_of(shape)
                if cls is not None and not spec.gated and place.node in usual:
                    specs.append(spec)
                    queues.append(queue)
                    shapes.append(shape)
                    classes.append(cls)
                    continue
            job = enter(state, spec)
            state.version += 1
            classes += job.shape.classes
        _learn(state, Counter(classes))
        return specs, queues, shapes

    def _usual_class(self, shape: Shape) -> int | None:
        """The class of the one task of a shape, where it is a usual one."""
        if shape.id not in self._classes:
            cls, kinds = shape.cls, self._state.classes.kinds
            usual = len(shape.classes) == 1 and kinds[cls].form in USUAL_FORMS
            self._classes[shape.id] = cls if usual else None
        return self._classes[shape.id]


class _Places:
    """Single tasks on usual nodes, as columns."""

    def __init__(self, state: State, jobs: Sequence[JobInfo], places: Sequence[TaskPlaced]) -> None:
        self._state, self._jobs, self._places = state, jobs, places
        classes, slots = state.classes, state.nodes.slots
        self._node = np.array([slots[place.node] for place in places], np.int64)
        self._cls = np.array([job.shape.cls for job in jobs], np.int64)
        numbers = sorted(set(self._cls.tolist()))
        self._hosts = {cls: classes.host(cls) for cls in numbers}
        share = np.zeros(len(classes), np.int64)
        self._wanted = np.zeros(len(classes), np.int64)
        counted = np.zeros(len(classes), np.int64)
        for cls in numbers:
            kind = classes.kinds[cls]
            share[cls] = kind.amount if kind.form is GpuForm.SHARE else MILLI
            self._wanted[cls] = classes.devices(cls)
            counted[cls] = classes.request(cls).counted_milli
        self._counted = counted.take(self._cls)
        self._share = share.take(self._cls) * (self._wanted.take(self._cls) > 0)
        sizes = [len(place.devices) for place in places]
        self._size = np.array(sizes, np.int64)
        self._task = np.repeat(np.arange(len(places)), self._size)
        self._device = np.array([d for place in places for d in place.devices], np.int64)

    def enter(self) -> bool:
        """Whether they are all possible; nothing has changed when not."""
        if not self._jobs:
            return True
        free = self._free_after()
        if free is None:
            return False
        state = self._state
        state.nodes.free.devices[:] = free
        for row, amounts in enumerate(self._host_amounts()):
            taken = np.bincount(self._node, amounts, len(state.nodes.schedulable))
            state.nodes.free.host[row] -= taken.astype(np.int64)
        state.capacity.mark_many(sorted(set(self._node.tolist())))
        self._put_tasks()
        self._sum_up()
        return True

    def _free_after(self) -> Counts | None:
        """(D, N) free thousandths when they are all there; ``None`` where that cannot be."""
        nodes = self._state.nodes
        if bool((self._size != self._wanted.take(self._cls)).any()):
            return None
        node, share = self._node.take(self._task), self._share.take(self._task)
        if bool((self._device < 0).any() or (self._device >= nodes.devices.take(node)).any()):
            return None
        if len(np.unique(self._task * 64 + self._device)) != len(self._task):
            return None
        width = nodes.free.devices.shape[1]
        taken = np.bincount(self._device * width + node, share, nodes.free.devices.size)
        free = nodes.free.devices.astype(np.int64)
        free -= taken.reshape(free.shape).astype(np.int64)
        return None if bool((free < 0).any()) else free

    def _host_amounts(self) -> list[Counts]:
        """The amounts of each host row that a task takes."""
        rows = max(len(host) for host in self._hosts.values())
        by_class = np.zeros((rows, len(self._wanted)), np.int64)
        for cls, host in self._hosts.items():
            by_class[: len(host), cls] = host
        return [row.take(self._cls) for row in by_class]

    def _put_tasks(self) -> None:
        state, jobs = self._state, self._jobs
        masks = np.zeros(len(jobs), np.uint64)
        np.bitwise_or.at(masks, self._task, np.uint64(1) << self._device.astype(np.uint64))
        slot = np.array([job.slot for job in jobs], np.int64)
        queue = state.jobs.queue.take(slot)
        safe = [job.spec.preemptible is not Preemptibility.YES for job in jobs]
        columns = {
            "node": self._node,
            "mask": masks,
            "share": self._share,
            "counted": self._counted,
            "cls": self._cls,
            "job": slot,
            "index": np.zeros(len(jobs), np.int64),
            "victim": np.where(safe, NOBODY, queue),
            "priority": state.jobs.priority.take(slot),
        }
        rows = state.tasks.put_many(columns, self._hosts)
        for job, place, row in zip(jobs, self._places, rows, strict=True):
            job.rows[0] = row
            job.started = place.at
            state.holding[place.uid] = job
            if job.spec.moves_to_preferred:
                state.improvable[place.uid] = job
        state.jobs.since[slot] = np.maximum([place.at for place in self._places], NEVER_SAVED)
        state.jobs.gpu[slot] = self._share * self._size + self._counted
        state.jobs.placed[slot] = 1

    def _sum_up(self) -> None:
        """The queues' sums."""
        state, jobs = self._state, self._jobs
        fixed = [job.spec.preemptible is not Preemptibility.YES for job in jobs]
        width = len(state.classes)
        key = np.array([job.queue for job in jobs], np.int64) * width + self._cls
        for which, keys in ((Sum.USED, key), (Sum.FIXED, key[fixed])):
            for pair, tasks in zip(*np.unique(keys, return_counts=True), strict=True):
                queue, cls = divmod(int(pair), width)
                state.queues.add(which, queue, state.classes.amounts(cls), sign=int(tasks))
        for job, safe in zip(jobs, fixed, strict=True):
            if safe:
                job.fixed = job.shape.amounts[0]


def _is_leaf(state: Columns, slot: int) -> bool:
    return not state.queues.children(slot)


def _learn(state: Columns, arrived: Counter[int]) -> None:
    """Learn what is typical from all arrivals together, and price it once, at the end."""
    value = state.chooser.value
    ordered = sorted(arrived.items())
    if sum(arrived.values()) < LEAST_LEARNED:
        for cls, tasks in ordered:
            value.seen(cls, tasks)
        return
    seen, ended, _, prices = value.memory()
    value.recall((seen, ended, NEVER_DUE, prices))
    for cls, tasks in ordered[:-1]:
        value.seen(cls, tasks)
    seen = value.memory()[0]
    value.recall((seen, ended, LEAST_LEARNED, prices))
    value.seen(*ordered[-1])
