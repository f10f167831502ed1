"""Which running work lies beyond its project's GPU quota: a name for it, not a rule of eviction.

Who gives way is decided per project and by the order of victims (``actions.victims``); this is the
label that people see on a job and on the map.
"""

from typing import TYPE_CHECKING

from carrel_scheduler.core.resources import UNLIMITED

if TYPE_CHECKING:
    from carrel_scheduler.core.state import State
    from carrel_scheduler.core.workloads import Record


def borrowed_work(state: "State") -> frozenset[str]:
    """The uids of all workloads that reach beyond their project's GPU quota."""
    by_project: dict[int, list[Record]] = {}
    for record in state.holding_records():
        by_project.setdefault(record.project, []).append(record)
    beyond: set[str] = set()
    for slot, records in by_project.items():
        quota = state.project_columns.rule(slot).quota.gpu_milli
        if quota == UNLIMITED:
            continue
        held = 0
        for record in sorted(records, key=_most_rightful_first):
            gpu = record.spec.request.gpu_milli * len(record.rows)
            held += gpu
            if gpu and held > quota:
                beyond.add(record.spec.uid)
    return frozenset(beyond)


def _most_rightful_first(record: "Record") -> tuple[bool, bool, int, float, str]:
    spec = record.spec
    return (record.stopping > 0, spec.preemptible, -spec.priority, record.started, spec.uid)
