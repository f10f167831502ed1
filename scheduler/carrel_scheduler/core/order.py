"""The order of service: whose workload is tried next.

Inside a project: higher priority, then the older submission, then the uid. Between projects the
first difference decides, looking at each project's best waiting workload:

1. a project beyond its fair share in all resources comes last;
2. a workload with which its project stays within its guarantee comes first;
3. the higher rank;
4. a project without any share of something it would use comes last;
5. the smaller dominant share with the workload, then without it;
6. the older project, then the name.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence

from carrel_scheduler.core.projects import Triple
from carrel_scheduler.core.standings import RESOURCES, Standing
from carrel_scheduler.core.workloads import Record

Key = tuple[bool, bool, int, bool, int, int, float, str]
NOTHING: Triple = (0, 0, 0)


def job_key(record: Record) -> tuple[int, float, str]:
    """The order inside a project."""
    spec = record.spec
    return (-spec.priority, spec.created_at, spec.uid)


def project_key(standing: Standing, demand: Triple) -> Key:
    """The order between projects; smaller is served first."""
    used, fair, ceiling, rule = standing.used, standing.fair, standing.ceiling, standing.rule
    return (
        used[0] > fair[0] and used[1] > fair[1] and used[2] > fair[2],
        not standing.within(standing.quota, demand),
        -rule.rank,
        any(ceiling[r] == 0 and used[r] + demand[r] > 0 for r in RESOURCES),
        standing.share(demand),
        standing.share(NOTHING),
        rule.created_at,
        rule.name,
    )


class Service:
    """Serves the waiting workloads of all projects one by one, in the order of service.

    A workload that cannot be served does not block others: its project's next one follows, except
    those of the same kind, which would fail alike. ``changed`` is where an attempt notes the slots
    of other projects whose standing it changed.
    """

    def __init__(
        self,
        standings: Sequence[Standing | None],
        queues: Mapping[int, Sequence[Record]],
        changed: set[int] | None = None,
    ) -> None:
        self._standings = standings
        self._queues = queues
        self._changed: set[int] = set() if changed is None else changed
        self._next = dict.fromkeys(queues, 0)
        self._keys: dict[int, Key] = {}
        self._heap: list[tuple[Key, int]] = []

    def run(self, attempt: Callable[[Record], bool], *, alike: bool = True) -> None:
        """Offer every workload to ``attempt``; true means that it was served.

        Args:
            attempt: tries to serve a workload.
            alike: skip what equals a workload that failed before.
        """
        failed: set[object] = set()
        for slot in self._queues:
            self._offer(slot, failed)
        while self._heap:
            key, slot = heapq.heappop(self._heap)
            if self._keys.get(slot) != key:
                continue
            record = self._queues[slot][self._next[slot]]
            self._next[slot] += 1
            if attempt(record):
                self._refresh()
            elif alike:
                failed.add(kind_of(record))
            self._offer(slot, failed)

    def _offer(self, slot: int, failed: set[object]) -> None:
        """Put a project's next workload, which is not known to fail, into the heap."""
        queue, place = self._queues[slot], self._next[slot]
        while place < len(queue) and failed and kind_of(queue[place]) in failed:
            place += 1
        self._next[slot] = place
        if place < len(queue):
            self._push(slot, self._key(slot, queue[place]))
        else:
            self._keys.pop(slot, None)

    def _refresh(self) -> None:
        """Take note of standings that a served workload changed."""
        for slot in sorted(self._changed & self._keys.keys()):
            if self._next[slot] < len(self._queues[slot]):
                key = self._key(slot, self._queues[slot][self._next[slot]])
                if key != self._keys[slot]:
                    self._push(slot, key)
        self._changed.clear()

    def _key(self, slot: int, record: Record) -> Key:
        standing = self._standings[slot]
        if standing is None:
            raise KeyError(slot)
        return project_key(standing, record.demand)

    def _push(self, slot: int, key: Key) -> None:
        self._keys[slot] = key
        heapq.heappush(self._heap, (key, slot))


def kind_of(record: Record) -> tuple[int, bool, object]:
    """Workloads of one kind meet the same answer: same project, rules and request."""
    return (record.project, record.spec.preemptible, record.shape)


def service_order(
    standings: Sequence[Standing | None], queues: Mapping[int, Sequence[Record]]
) -> tuple[str, ...]:
    """All waiting uids in the order in which they would start if room came one by one.

    Each is counted as served before the next is chosen, so equal projects alternate. The standings
    are the same afterwards.
    """
    order: list[Record] = []

    def serve(record: Record) -> bool:
        standing = standings[record.project]
        if standing is None:
            raise KeyError(record.project)
        standing.add(record.demand, preemptible=record.spec.preemptible)
        order.append(record)
        return False

    Service(standings, queues).run(serve, alike=False)
    for record in order:
        standing = standings[record.project]
        if standing is not None:
            standing.add(record.demand, preemptible=record.spec.preemptible, sign=-1)
    return tuple(record.spec.uid for record in order)
