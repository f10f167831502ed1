"""What must always hold, as functions over the state and over a plan.

Each returns the violations it finds as sentences for engineers; an empty list means that it holds.
They recount from the single tasks and use none of the sums that deciding relies on. Those over the
state alone are cheap enough to run in production.
"""

from collections import Counter

import numpy as np

from carrel_scheduler.core.footprints import gpu_cpu_memory
from carrel_scheduler.core.layers import Footprint, Layer
from carrel_scheduler.core.plan_invariants import check_plan
from carrel_scheduler.core.projects import Triple
from carrel_scheduler.core.resources import MILLI, UNLIMITED
from carrel_scheduler.core.standings import RESOURCE_NAMES, RESOURCES
from carrel_scheduler.core.state import State
from carrel_scheduler.core.workloads import Record

__all__ = ["STATE_INVARIANTS", "check", "check_plan"]


def check(state: State) -> list[str]:
    """All violations of the invariants over the state."""
    return [violation for invariant in STATE_INVARIANTS for violation in invariant(state)]


def no_device_over_capacity(state: State) -> list[str]:
    """What the tasks of a device hold is at most the whole device."""
    held: Counter[tuple[int, int]] = Counter()
    for _, place in _placed(state):
        for device in place.devices:
            held[place.node, device] += place.share
    return [
        f"device {device} of {state.nodes.names[node]} holds {amount} of {MILLI}"
        for (node, device), amount in sorted(held.items())
        if amount > MILLI
    ]


def no_host_over_capacity(state: State) -> list[str]:
    """CPU and memory of a node are not given out twice."""
    found = []
    for name, slot in sorted(state.nodes.slots.items()):
        for row, resource in enumerate(("cpu", "memory")):
            free = int(state.nodes.free.host[row, slot])
            if free < 0:
                found.append(f"{resource} of {name} is over by {-free}")
    return found


def non_preemptible_within_quota(state: State) -> list[str]:
    """Non-preemptible work stays within its project's quota."""
    columns = state.project_columns
    return [
        f"{name} holds {held} {RESOURCE_NAMES[r]} in non-preemptible work, quota {bound}"
        for name, slot in sorted(columns.slots.items())
        for r, held, bound in _over(
            _used(state, slot, only_fixed=True), columns.ceiling(slot).fixed
        )
    ]


def limits_held(state: State) -> list[str]:
    """No project is beyond its limit."""
    columns = state.project_columns
    return [
        f"{name} holds {held} {RESOURCE_NAMES[r]}, limit {bound}"
        for name, slot in sorted(columns.slots.items())
        for r, held, bound in _over(_used(state, slot), columns.ceiling(slot).all)
    ]


def gangs_all_or_none(state: State) -> list[str]:
    """Of a workload's tasks all got a place or none did."""
    found = []
    for record in state.records:
        uid, tasks = record.spec.uid, record.spec.tasks
        if record.waiting and record.rows:
            found.append(f"{uid} waits and holds {len(record.rows)} places")
        if record.rows and record.seen != tasks:
            found.append(f"{uid} got {record.seen} of {tasks} places")
    return found


def no_task_twice(state: State) -> list[str]:
    """Each task has one place."""
    owners = Counter(owner for owner in state.tasks.owners if owner[0])
    return [f"task {owner} has {count} places" for owner, count in owners.items() if count > 1]


def promises_stand_alone(state: State) -> list[str]:
    """Promised room is whole, free or being released, and promised once."""
    nodes = state.nodes
    soon = nodes.free.devices + nodes.releasing.devices - nodes.promised.devices
    found = [
        f"device {device} of {nodes.names[node]} is promised but neither free nor being released"
        for device, node in np.argwhere(soon < 0)
    ]
    promised = Layer.empty(*nodes.free.devices.shape)
    for record in state.records:
        for place in record.promise:
            promised.add(place)
        if record.promise and not record.waiting:
            found.append(f"{record.spec.uid} does not wait and has places held")
    if not np.array_equal(promised.devices, nodes.promised.devices):
        found.append("promised devices differ from a recount")
    if not np.array_equal(promised.host, nodes.promised.host):
        found.append("promised CPU or memory differs from a recount")
    return found


def sums_equal_recount(state: State) -> list[str]:
    """Every kept sum equals what a recount from the single tasks gives."""
    nodes, columns = state.nodes, state.project_columns
    taken, releasing = (Layer.empty(*nodes.free.devices.shape) for _ in range(2))
    for row, place in _placed(state):
        taken.add(place)
        if state.tasks.stopping[row]:
            releasing.add(place)
    exists = np.arange(len(nodes.free.devices))[:, None] < nodes.devices
    found = []
    if not np.array_equal(nodes.free.devices + taken.devices, exists * MILLI):
        found.append("free devices differ from a recount")
    if not np.array_equal(nodes.free.host + taken.host, nodes.capacity):
        found.append("free CPU or memory differs from a recount")
    if not np.array_equal(releasing.devices, nodes.releasing.devices):
        found.append("releasing devices differ from a recount")
    for name, slot in sorted(columns.slots.items()):
        if _used(state, slot) != tuple(columns.used[slot]):
            found.append(f"what {name} uses differs from a recount")
        if _used(state, slot, only_fixed=True) != tuple(columns.used_fixed[slot]):
            found.append(f"what {name} uses non-preemptibly differs from a recount")
        waiting = [r.demand for r in state.records if r.waiting and r.project == slot]
        if _sum(waiting) != tuple(columns.waiting[slot]):
            found.append(f"what {name} waits for differs from a recount")
    return found


STATE_INVARIANTS = (
    no_device_over_capacity,
    no_host_over_capacity,
    non_preemptible_within_quota,
    limits_held,
    gangs_all_or_none,
    no_task_twice,
    promises_stand_alone,
    sums_equal_recount,
)


def _placed(state: State) -> list[tuple[int, Footprint]]:
    rows = [row for record in state.records for row in record.rows.values()]
    return [(row, state.tasks.footprint(row)) for row in rows]


def _used(state: State, slot: int, *, only_fixed: bool = False) -> Triple:
    """What a project's tasks hold that were not told to stop."""

    def counts(record: Record) -> bool:
        return record.project == slot and not (only_fixed and record.spec.preemptible)

    return _sum(
        [
            gpu_cpu_memory(state.tasks.footprint(row))
            for record in state.records
            if counts(record)
            for row in record.rows.values()
            if not state.tasks.stopping[row]
        ]
    )


def _sum(amounts: list[Triple]) -> Triple:
    gpu, cpu, memory = (sum(amount[r] for amount in amounts) for r in RESOURCES)
    return gpu, cpu, memory


def _over(held: Triple, bound: Triple) -> list[tuple[int, int, int]]:
    return [
        (r, held[r], bound[r]) for r in RESOURCES if bound[r] != UNLIMITED and held[r] > bound[r]
    ]
