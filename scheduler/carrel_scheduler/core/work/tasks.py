"""Placed tasks as a struct of arrays: one row per task, rows reused.

What a task takes beside its devices follows from its class. A row belongs to one task from
``TaskPlaced`` to ``TaskReleased``. ``PreemptibleUsage`` keeps the rows of each node, and per node
and queue the sum of what preemptible tasks hold, so that a preemptor need not look at all tasks.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.layers import Bools, Counts, Footprint

NOBODY = -1
PRIORITY_OFFSET = 1 << 15
"""Added to a priority, a signed number of 16 bits, so that it is not below zero."""
_OTHERS = ("priority", "stopping", "stuck")


COLUMNS = 256
FEW_COLUMNS = 8
"""Sums over so many columns are not kept."""
GPU, CPU = 0, 1

Victims = tuple[int, int, int, int]
"""A number of tasks, and the GPU thousandths, millicores and MiB that they hold together."""


class PreemptibleUsage:
    """Rows by node, and the amounts that evictions could free, by queue.

    Attributes:
        rows: node -> rows of the tasks on it, in no order.
    """

    def __init__(self, tasks: "TaskColumns") -> None:
        """Count all tasks once; ``enter``, ``leave`` and ``add`` follow the changes."""
        used = tasks.used()
        nodes = tasks.node.take(used)
        width = int(nodes.max(initial=-1)) + 1
        self.rows: list[list[int]] = [[] for _ in range(width)]
        for row, node in zip(used.tolist(), nodes.tolist(), strict=True):
            self.rows[node].append(row)
        self._held: npt.NDArray[np.int32] = np.zeros((2, COLUMNS, width), np.int32)
        preemptible = used[tasks.victim.take(used) >= 0]
        spot = tasks.victim.take(preemptible).astype(np.int64) % COLUMNS * width + tasks.node.take(
            preemptible
        )
        for kind, amount in (
            (GPU, tasks.gpu.take(preemptible)),
            (CPU, tasks.host[0].take(preemptible)),
        ):
            sums = np.bincount(spot, amount, COLUMNS * width).astype(np.int32)
            self._held[kind] = sums.reshape(COLUMNS, width)
        self._summed: Bools = np.zeros(COLUMNS, np.bool_)
        self._sums: npt.NDArray[np.int32] = np.zeros((2, width), np.int32)

    def enter(self, row: int, node: int) -> None:
        """A task came to a node."""
        if node >= len(self.rows):
            self._widen(max(node + 1, 2 * len(self.rows)))
        self.rows[node].append(row)

    def leave(self, row: int, node: int) -> None:
        """Handle a task that leaves its node."""
        self.rows[node].remove(row)

    def add(self, queue: int, node: int, gpu: int, cpu: int) -> None:
        """Add to the amounts of a queue that evictions could free on a node."""
        column = queue % COLUMNS
        self._held[GPU, column, node] += gpu
        self._held[CPU, column, node] += cpu
        if self._summed.item(column):
            self._sums[GPU, node] += gpu
            self._sums[CPU, node] += cpu

    def of(self, queues: Bools, nodes: int) -> Counts:
        """(2, N) thousandths of GPUs and millicores that these queues, (Q,), could give at most."""
        found = np.zeros((2, nodes), np.int64)
        asked = np.zeros(COLUMNS, np.bool_)
        asked[queues.nonzero()[0] % COLUMNS] = True
        width = min(nodes, self._held.shape[2])
        if np.count_nonzero(asked) > FEW_COLUMNS:
            found[:, :width] = self._sum(asked)[:, :width]
        else:
            for column in asked.nonzero()[0].tolist():
                found[:, :width] += self._held[:, column, :width]
        return found

    def _sum(self, columns: Bools) -> npt.NDArray[np.int32]:
        """(2, width) the sum of these columns, (COLUMNS,), from that of the last ones asked for."""
        more, less = columns & ~self._summed, self._summed & ~columns
        if np.count_nonzero(more | less) < np.count_nonzero(columns):
            for kind in (GPU, CPU):
                self._sums[kind] += self._held[kind, more].sum(axis=0, dtype=np.int32)
                self._sums[kind] -= self._held[kind, less].sum(axis=0, dtype=np.int32)
        else:
            self._sums = self._held[:, columns].sum(axis=1, dtype=np.int32)
        self._summed = columns
        return self._sums

    def on(self, nodes: Counts) -> Counts:
        """Rows of the tasks on these nodes, ascending."""
        known = self.rows
        found = [row for node in nodes.tolist() if node < len(known) for row in known[node]]
        return np.sort(np.array(found, np.int64))

    def _widen(self, nodes: int) -> None:
        self.rows += [[] for _ in range(nodes - len(self.rows))]
        held = np.zeros((2, COLUMNS, nodes), np.int32)
        held[:, :, : self._held.shape[2]] = self._held
        self._sums = np.pad(self._sums, ((0, 0), (0, nodes - self._sums.shape[1])))
        self._held = held


class TaskColumns:
    """The tasks that hold allocations, as columns.

    Attributes:
        node: (T,) slot of the node, -1 for an unused row.
        mask: (T,) bit d set when the task holds device d.
        share: (T,) thousandths of each of these devices; slots: (T,) bits of a MIG instance.
        counted: (T,) thousandths of GPUs beside these devices, see ``Request.counted_milli``.
        gpu: (T,) thousandths of GPUs that count for its queue: of the devices and beside them.
        cls: (T,) class of its request; job: (T,) slot of its workload; index: (T,) within it.
        host: (2, T) millicores and MiB.
        victim: (T,) slot of the queue while the task may be evicted (preemptible and not stopping
            already), else -1.
        priority: (T,) of its workload.
        victims: slot of a queue -> priority -> how many tasks may be evicted, and what they hold
            together; none where empty.
        victims_in_all: how many these are.
        stopping: (T,) it is terminating and still holds its allocation; stuck: (T,) it did not
            end in time.
    """

    def __init__(self) -> None:
        self.node: Counts = np.full(0, NOBODY, np.int64)
        self.mask: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self.share: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        self.slots: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
        self.counted: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self.gpu: Counts = np.zeros(0, np.int64)
        self.cls: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self.job: Counts = np.full(0, NOBODY, np.int64)
        self.index: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self.host: Counts = np.zeros((2, 0), np.int64)
        self.victim: npt.NDArray[np.int32] = np.full(0, NOBODY, np.int32)
        self.priority: npt.NDArray[np.int16] = np.zeros(0, np.int16)
        self.stopping: Bools = np.zeros(0, np.bool_)
        self.stuck: Bools = np.zeros(0, np.bool_)
        self.hosts: dict[int, tuple[int, ...]] = {}
        self.victims: dict[int, dict[int, Victims]] = {}
        self.victims_in_all = 0
        self._spare: list[int] = []
        self._usage: PreemptibleUsage | None = None

    @property
    def preemptible_usage(self) -> PreemptibleUsage:
        """Tasks and what may be taken of them by node; counted when first asked for, then kept."""
        if self._usage is None:
            self._usage = PreemptibleUsage(self)
        return self._usage

    def put(
        self, place: Footprint, *, cls: int, job: int, index: int, victim: int, priority: int
    ) -> int:
        """Add a task; returns its row."""
        if not self._spare:
            self._grow(max(16, 2 * len(self.node)))
        row = self._spare.pop()
        self.node[row] = place.node
        self.mask[row] = device_mask(place.devices)
        self.share[row] = place.share
        self.slots[row] = place.slots
        self.counted[row] = place.counted
        self.gpu[row] = place.amounts[0]
        self.cls[row] = cls
        self.job[row] = job
        self.index[row] = index
        self.host[0, row], self.host[1, row] = place.host[0], place.host[1]
        self.victim[row] = victim
        self.priority[row] = priority
        self.hosts.setdefault(cls, place.host)
        if self._usage is not None:
            self._usage.enter(row, place.node)
        return row

    def put_many(self, columns: dict[str, Counts], hosts: dict[int, tuple[int, ...]]) -> list[int]:
        """Add tasks at once; returns their rows.

        Args:
            columns: (n,) for each of ``node``, ``mask``, ``share``, ``counted``, ``cls``, ``job``,
                ``index``, ``victim`` and ``priority``.
            hosts: what a task takes of each host row, by class.
        """
        self._usage = None
        count = len(columns["node"])
        self.reserve(len(self.node) - len(self._spare) + count)
        rows = self._spare[: -count - 1 : -1]
        del self._spare[len(self._spare) - count :]
        at = np.array(rows, np.int64)
        for name, values in columns.items():
            getattr(self, name)[at] = values
        devices = np.bitwise_count(columns["mask"].astype(np.uint64)).astype(np.int64)
        self.gpu[at] = columns["share"] * devices + columns["counted"]
        cls = columns["cls"].tolist()
        self.host[0, at] = [hosts[one][0] for one in cls]
        self.host[1, at] = [hosts[one][1] for one in cls]
        self.hosts |= {one: hosts[one] for one in hosts if one not in self.hosts}
        for (queue, priority), victims in self.victims_of(at).items():
            self._count_victim(queue, priority, victims)
        return rows

    def victims_of(self, rows: Counts) -> dict[tuple[int, int], Victims]:
        """The tasks, of these, that may be evicted, by slot of their queue and by priority."""
        rows = rows.compress(self.victim.take(rows) != NOBODY)
        if not len(rows):
            return {}
        pairs = self.victim.take(rows).astype(np.int64) << 16  # then the 16 bits of the priority
        pairs += self.priority.take(rows).astype(np.int64) + PRIORITY_OFFSET
        kinds, which, tasks = np.unique(pairs, return_inverse=True, return_counts=True)
        amounts = (self.gpu.take(rows), self.host[0].take(rows), self.host[1].take(rows))
        held = [np.bincount(which, amount).astype(np.int64).tolist() for amount in amounts]
        victims = zip(tasks.tolist(), *held, strict=True)
        queues, priorities = (kinds >> 16).tolist(), ((kinds & 0xFFFF) - PRIORITY_OFFSET).tolist()
        return dict(zip(zip(queues, priorities, strict=True), victims, strict=True))

    def set_victim(self, row: int, queue: int) -> None:
        """Set whether a task may be evicted: the slot of its queue, or ``NOBODY``."""
        before = self.victim.item(row)
        if before == queue:
            return
        priority, cpu = self.priority.item(row), self.host.item(0, row)
        gpu = self.gpu.item(row)
        for slot, sign in ((before, -1), (queue, 1)):
            if slot != NOBODY:
                held = sign * gpu, sign * cpu, sign * self.host.item(1, row)
                self._count_victim(slot, priority, (sign, *held))
                if self._usage is not None:
                    self._usage.add(slot, self.node.item(row), sign * gpu, sign * cpu)
        self.victim[row] = queue

    def _count_victim(self, queue: int, priority: int, more: Victims) -> None:
        self.victims_in_all += more[0]
        of_queue = self.victims.setdefault(queue, {})
        tasks, gpu, cpu, memory = of_queue.get(priority, (0, 0, 0, 0))
        if tasks + more[0]:
            now = tasks + more[0], gpu + more[1], cpu + more[2], memory + more[3]
            of_queue[priority] = now
            return
        del of_queue[priority]
        if not of_queue:
            del self.victims[queue]

    def drop(self, row: int) -> None:
        """Forget a task."""
        self.set_victim(row, NOBODY)
        if self._usage is not None:
            self._usage.leave(row, self.node.item(row))
        self.node[row] = self.job[row] = NOBODY
        self.mask[row] = self.share[row] = self.slots[row] = self.counted[row] = 0
        self.gpu[row] = self.host[0, row] = self.host[1, row] = 0
        self.stopping[row] = self.stuck[row] = False
        self._spare.append(row)

    def counted_on(self, nodes: Bools) -> int:
        """Thousandths of GPUs beside devices that the tasks of some nodes, (N,), hold."""
        rows = self.used()
        return int(self.counted.take(rows)[nodes.take(self.node.take(rows))].sum())

    def footprint(self, row: int) -> Footprint:
        """The resources that the task of this row takes."""
        node = self.node.item(row)
        if node == NOBODY:
            raise KeyError(row)
        return Footprint(
            node,
            devices_of(self.mask.item(row)),
            self.share.item(row),
            self.hosts[self.cls.item(row)],
            self.slots.item(row),
            self.counted.item(row),
        )

    @property
    def count(self) -> int:
        """The number of tasks."""
        return len(self.node) - len(self._spare)

    def rows_on(self, node: int) -> list[int]:
        """Rows of the tasks on a node, by row."""
        rows: list[int] = self.preemptible_usage.on(np.array([node])).tolist()
        return rows

    def used(self) -> Counts:
        """Rows that hold a task."""
        return np.flatnonzero(self.node != NOBODY)

    def reserve(self, rows: int) -> None:
        """Allocate so many rows at once, before a bulk load."""
        if rows > len(self.node):
            self._grow(rows)

    def _grow(self, new: int) -> None:
        old = len(self.node)
        for name in ("node", "job", "victim"):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.full(new - old, NOBODY, column.dtype)]))
        for name in ("mask", "share", "slots", "counted", "gpu", "cls", "index", *_OTHERS):
            column = getattr(self, name)
            setattr(self, name, np.concatenate([column, np.zeros(new - old, column.dtype)]))
        self.host = np.concatenate([self.host, np.zeros((2, new - old), np.int64)], axis=1)
        self._spare += range(new - 1, old - 1, -1)


def device_mask(devices: tuple[int, ...]) -> int:
    """The devices as bits."""
    mask = 0
    for device in devices:
        mask |= 1 << device
    return mask


@lru_cache(maxsize=4096)
def devices_of(mask: int) -> tuple[int, ...]:
    """The devices of a bit mask, ascending."""
    found = []
    while mask:
        lowest = mask & -mask
        found.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(found)
