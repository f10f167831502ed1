"""The order of service between queues: whose work is tried next, and who is evicted first.

Siblings are compared with the best candidate below each; the first difference decides:

1. a queue beyond its fair share in all resources comes last;
2. a queue that stays within its quota with the candidate comes first;
3. the higher rank;
4. a queue without any share of something that it would then hold comes last;
5. the smaller dominant share with the candidate, then 6. without it;
7. the smaller allocatable amounts: of GPUs, then of CPU, then of memory;
8. the older queue, then the name.

The tree is walked from the top, so a department is chosen before a project of it. Victims come in
exactly the reverse order, their candidate being the one who would be evicted next and their
queue_usage those without the victims taken before.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence

from typing_extensions import override

from carrel_scheduler.core.queues.fair_share import KnownKeys
from carrel_scheduler.core.queues.rules import RESOURCES
from carrel_scheduler.core.queues.usage import QueueUsage, dominant_share
from carrel_scheduler.core.resources import NONE

Key = tuple[int, ...]
Best = tuple[int, Sequence[int]]
"""A leaf and what its candidate asks for."""
Head = Callable[[int], Sequence[int] | None]
"""The resource request of the best candidate of a leaf, or ``None`` when there is none."""

TOP = -1
SHARE_WITH = 4
"""Place of the dominant share with the candidate in a key."""


def queue_key(queue_usage: QueueUsage, slot: int, demand: Sequence[int] = NONE) -> Key:
    """The place of a queue among its siblings; smaller is served first, no two are equal."""
    gpu, cpu, memory = used = queue_usage.used[slot]
    with_gpu, with_cpu, with_memory = then = gpu + demand[0], cpu + demand[1], memory + demand[2]
    fair_gpu, fair_cpu, fair_memory = queue_usage.fair[slot]
    quota_gpu, quota_cpu, quota_memory = queue_usage.quota[slot]
    keeps, measure = queue_usage.allocatable[slot], queue_usage.measure[slot]
    table = queue_usage.table
    return (
        gpu > fair_gpu and cpu > fair_cpu and memory > fair_memory,
        with_gpu > quota_gpu or with_cpu > quota_cpu or with_memory > quota_memory,
        -table.rank[slot],
        0 in keeps and any(then[r] > 0 and not keeps[r] for r in RESOURCES),
        dominant_share(then, measure),
        dominant_share(used, measure),
        *keeps,
        table.place[slot],
    )


def victim_key(queue_usage: QueueUsage, slot: int, demand: Sequence[int] = NONE) -> Key:
    """The reverse of ``queue_key``: smaller is evicted first.

    Only the dominant share is that without the candidate, which holds ``demand``: what a queue is
    beyond, it is as long as the candidate is there.
    """
    key = list(queue_key(queue_usage, slot))
    gpu, cpu, memory = queue_usage.used[slot]
    left = (gpu - demand[0], cpu - demand[1], memory - demand[2])
    key[SHARE_WITH] = dominant_share(left, queue_usage.measure[slot])
    return tuple(-part for part in key)


class ServiceOrder:
    """A tree of heaps over the leaves that have candidates, with the next one on top.

    A caller that changes usage or candidates calls ``update``; only that leaf's path is looked at
    again. Leaves without candidates cost nothing.
    """

    _key = staticmethod(queue_key)

    def __init__(self, queue_usage: QueueUsage, head: Head, leaves: Iterable[int]) -> None:
        """``leaves``: the queues that may have candidates, in any order."""
        self._usage, self._head = queue_usage, head
        self._leaves = set(leaves)
        self._popped: int | None = None
        self._parents = queue_usage.table.parent
        self._best: dict[int, Best] = {}
        self._keys: dict[int, Key] = {}
        self._heaps: dict[int, list[tuple[Key, int]]] = {}
        self._known = self._keys_known()
        self.update_all()

    def pop(self) -> int | None:
        """The leaf to serve next, or ``None``.

        It is out of the order until ``update`` is called for it; without that it does not return.
        """
        if self._popped is not None:
            self._set_head(self._popped, None)
        best = self._best.get(TOP)
        self._popped = None if best is None else best[0]
        return self._popped

    def update(self, leaf: int) -> None:
        """Update a leaf after a change of its usage or its candidate."""
        self._leaves.add(leaf)
        if leaf == self._popped:
            self._popped = None
        self._set_head(leaf, self._head(leaf))

    def forget(self, leaves: Iterable[int]) -> None:
        """Remove leaves without candidates."""
        paths = self._usage.table.path
        above: set[int] = set()
        for leaf in leaves:
            if self._best.pop(leaf, None) is not None:
                del self._keys[leaf]
                above.update(paths[leaf][1:])
        self._settle(above)

    def update_all(self) -> None:
        """Mark all queues as changed."""
        self._best, self._keys, self._heaps, self._popped = {}, {}, {}, None
        paths = self._usage.table.path
        above: set[int] = set()
        for leaf in sorted(self._leaves):
            demand = self._head(leaf)
            if demand is not None:
                self._place(leaf, (leaf, demand))
                above.update(paths[leaf][1:])
        self._settle(above)

    def _keys_known(self) -> KnownKeys:
        """Cached keys by slot, with the inputs of each."""
        return self._usage.known

    def _settle(self, above: Iterable[int]) -> None:
        """Find the best candidates of these inner queues anew, those of deeper ones first."""
        paths = self._usage.table.path
        for slot in sorted(above, key=lambda slot: -len(paths[slot])):
            self._place(slot, self._top_of(slot))
        self._note(self._top_of(TOP))

    def _set_head(self, leaf: int, demand: Sequence[int] | None) -> None:
        best = None if demand is None else (leaf, demand)
        for slot in self._usage.table.path[leaf]:
            self._place(slot, best)
            best = self._top_of(self._parents[slot])
        self._note(best)

    def _note(self, best: Best | None) -> None:
        """Note the best candidate of all."""
        if best is None:
            self._best.pop(TOP, None)
        else:
            self._best[TOP] = best

    def _place(self, slot: int, best: Best | None) -> None:
        """Note the best candidate below a queue, and the queue's place among its siblings."""
        if best is None:
            self._best.pop(slot, None)
            self._keys.pop(slot, None)
            return
        self._best[slot] = best
        stand, demand = self._usage, best[1]
        inputs = (
            *stand.used[slot], *demand, stand.fair[slot], stand.allocatable[slot],
            stand.measure[slot],
        )  # fmt: skip
        known = self._known.get(slot)
        if known is None or known[0] != inputs:
            known = self._known[slot] = inputs, self._key(stand, slot, demand)
        key = known[1]
        if self._keys.get(slot) is not key:
            self._keys[slot] = key
            heapq.heappush(self._heaps.setdefault(self._parents[slot], []), (key, slot))

    def _top_of(self, parent: int) -> Best | None:
        """The best candidate below ``parent``; outdated entries are dropped."""
        heap, keys = self._heaps.get(parent), self._keys
        while heap:
            key, slot = heap[0]
            if keys.get(slot) is key:
                return self._best[slot]
            heapq.heappop(heap)
        return None


class VictimOrder(ServiceOrder):
    """The same tree in reverse: ``head`` gives what a leaf's next victim holds.

    Victims are counted out of the queue usage as it are taken, and told by ``update``.
    """

    _key = staticmethod(victim_key)

    @override
    def _keys_known(self) -> KnownKeys:
        """Keys of victims are of another kind, and few."""
        return {}
