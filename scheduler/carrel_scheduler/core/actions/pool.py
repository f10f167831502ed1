"""Who may still be evicted: by project, in the order of victims, found by the nodes they are on."""

from collections.abc import Iterator

import numpy as np

from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.layers import Bools, Counts
from carrel_scheduler.core.state import State
from carrel_scheduler.core.tasks import NOBODY
from carrel_scheduler.core.workloads import Record


class Pool:
    """All evictable workloads of a cycle in one list, project after project.

    Each task knows the place of its workload in this list, so that those on some nodes are found
    by a few vector operations. Who is evicted meanwhile is left out.
    """

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._records: list[Record] = []
        self._spans: dict[int, slice] = {}
        for slot, records in _evictable(cycle).items():
            start = len(self._records)
            self._records += in_victim_order(records, cycle.state, cycle.now)
            self._spans[slot] = slice(start, len(self._records))
        self._place: Counts = np.full(len(cycle.evictable), NOBODY, np.int64)
        for place, record in enumerate(self._records):
            for row in record.rows.values():
                self._place[row] = place

    @property
    def slots(self) -> list[int]:
        """The projects that have, or had, evictable work."""
        return list(self._spans)

    def on(self, nodes: Bools) -> dict[int, Iterator[Record]]:
        """By project slot: the workloads that hold room on one of these nodes, in their order."""
        cycle = self._cycle
        rows = np.flatnonzero((cycle.evictable != NOBODY) & nodes[cycle.state.tasks.node])
        there = np.zeros(len(self._records), np.bool_)
        there[self._place[rows]] = True
        return {slot: self._walk(span, there) for slot, span in self._spans.items()}

    def _walk(self, span: slice, there: Bools) -> Iterator[Record]:
        for offset in np.flatnonzero(there[span]):
            yield self._records[span.start + offset]


def _evictable(cycle: Cycle) -> dict[int, list[Record]]:
    by_project: dict[int, list[Record]] = {}
    for record in cycle.state.holding_records():
        if record.evictable and record.spec.uid not in cycle.evicted:
            by_project.setdefault(record.project, []).append(record)
    return by_project


def in_victim_order(records: list[Record], state: State, now: float) -> list[Record]:
    """Workloads of one project, the first to give way first.

    Among those of one priority, what people see as borrowed goes before what they see as covered
    by the guarantee, so that nobody is surprised; then what loses the least work.
    """
    by_uid = sorted(records, key=lambda record: record.spec.uid, reverse=True)
    return sorted(
        by_uid,
        key=lambda r: (
            r.spec.priority,
            not state.is_borrowed(r.spec.uid),
            r.lost_if_stopped(now),
            -r.spec.created_at,
        ),
    )
