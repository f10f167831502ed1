"""Invariants of the state; those of a plan are in ``tests/unit/core/invariants``.

Each returns the violations it finds as sentences for engineers; an empty list means that it holds.
They recount from single tasks and jobs (``recount``), never from the sums that deciding relies on.
That the kept sums are right is checked in ``invariants.columns``.
"""

from collections import Counter
from collections.abc import Callable

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.invariants.recount import (
    Uses,
    all_held,
    core_of,
    counting,
    jobs_of,
    met,
    path_names,
)
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.mig import model_of
from carrel_scheduler.core.queues.rules import RESOURCES
from carrel_scheduler.core.queues.usage import RESOURCE_NAMES
from carrel_scheduler.core.resources import MILLI, Triple, added

Invariant = Callable[[Columns], list[str]]


def no_device_over_capacity(state: Columns) -> list[str]:
    """The tasks of a device hold at most the whole device."""
    held: Counter[tuple[int, int]] = Counter()
    for one in all_held(state):
        for device in one.place.devices:
            held[one.place.node, device] += one.place.share
    return [
        f"device {device} of {state.nodes.names[node]} holds {amount} of {MILLI}"
        for (node, device), amount in sorted(held.items())
        if amount > MILLI
    ]


def whole_devices_have_one_owner(state: Columns) -> list[str]:
    """A device that is held whole has no other holder."""
    owners: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for one in all_held(state):
        for device in one.place.devices:
            owners.setdefault((one.place.node, device), []).append((one.name, one.place.share))
    return [
        f"device {device} of {state.nodes.names[node]} is whole and shared: {there}"
        for (node, device), there in sorted(owners.items())
        if len(there) > 1 and any(share >= MILLI for _, share in there)
    ]


def mig_slots_disjoint(state: Columns) -> list[str]:
    """Two MIG instances of a device share no memory slot, and each lies where its profile may."""
    found, used = [], dict[tuple[int, int], int]()
    for one in all_held(state):
        place = one.place
        for device in place.devices if place.slots else ():
            if used.get((place.node, device), 0) & place.slots:
                found.append(f"{one.name} overlaps on device {device}")
            used[place.node, device] = used.get((place.node, device), 0) | place.slots
        profile = one.job.shape.requests[one.index].mig_profile
        if profile:
            kind = model_of(state.nodes.fact(place.node).mig_model).profiles[profile]
            if place.slots not in kind.places:
                found.append(f"{one.name} lies at {place.slots:#b}, no place of {profile}")
    return found


def tasks_hold_what_they_ask(state: Columns) -> list[str]:
    """The place of each task matches its request: devices, CPU, memory, extended resources."""
    found = []
    for one in all_held(state):
        request, place = one.job.shape.requests[one.index], one.place
        shared = request.share_milli or request.gpu_memory_mib or request.mig_profile
        wanted = request.gpus or (request.devices if shared else 0)
        if len(place.devices) != wanted or (request.gpus and place.share != MILLI):
            found.append(f"{one.name} holds {place.devices} of {place.share}")
        if request.share_milli and place.share != request.share_milli:
            found.append(f"{one.name} holds {place.share} of each device")
        asked = {0: request.cpu_milli, 1: request.memory_mib}
        asked |= {state.nodes.extended[name]: amount for name, amount in request.extended}
        if any(amount != asked.get(row, 0) for row, amount in enumerate(place.host)):
            found.append(f"{one.name} holds {place.host} of the host")
    return found


def no_row_has_two_tasks(state: Columns) -> list[str]:
    """Each task has a row of its own, and the row names that task."""
    tasks, seen = state.tasks, Counter[int]()
    found = []
    for one in all_held(state):
        seen[one.row] += 1
        if (int(tasks.job[one.row]), int(tasks.index[one.row])) != (one.job.slot, one.index):
            found.append(f"row {one.row} of {one.name} is somebody else's")
        if bool(tasks.stopping[one.row]) != one.stopping or bool(tasks.stuck[one.row]) != one.stuck:
            found.append(f"row {one.row} of {one.name} is stopping or stuck differently")
    found += [f"row {row} has {count} tasks" for row, count in seen.items() if count > 1]
    if len(seen) != len(tasks.used()):
        found.append(f"{len(tasks.used())} rows are used by {len(seen)} tasks")
    return found


def reserved_once(state: Columns) -> list[str]:
    """A device is reserved at most once over, a memory slot to one workload."""
    share: Counter[tuple[int, int]] = Counter()
    slots: dict[tuple[int, int], int] = {}
    found = []
    for job in jobs_of(state):
        for _, place in job.reservation:
            for device in place.devices:
                share[place.node, device] += place.share
                if slots.get((place.node, device), 0) & place.slots:
                    found.append(f"slots of device {device} are reserved twice, also for {job.uid}")
                slots[place.node, device] = slots.get((place.node, device), 0) | place.slots
    found += [f"device {key} is reserved {sum_} of {MILLI}" for key, sum_ in share.items()
              if sum_ > MILLI]  # fmt: skip
    return found


def reserved_for_waiting_tasks(state: Columns) -> list[str]:
    """Reservations belong to tasks that wait, or that are terminating and move."""
    return [
        f"{job.uid}[{index}] runs or does not wait, and has a reservation"
        for job in jobs_of(state)
        for index, _ in job.reservation
        if index not in job.pending() and index not in job.halted
    ]


def non_preemptible_within_quota(state: Columns) -> list[str]:
    """Non-preemptible work stays within quota at every level.

    Where a rule was set below what was reserved at that time, the reserved amount is the bound.
    """
    uses = Uses(state)
    for job in jobs_of(state):
        places = (state.tasks.footprint(job.rows[index]) for index in core_of(job))
        uses.add(job.queue, added(place.amounts for place in places))
    return [
        f"{name} holds {held} {what} in non-preemptible work, bound {bound}"
        for name, slot in sorted(state.queues.slots.items())
        for what, held, bound in _over(uses.of[name], state.queues.ceiling(slot).fixed)
    ]


def cores_are_minima(state: Columns) -> list[str]:
    """The protected tasks of semi-preemptible work are its minimum, while it has that.

    There are none where the core was recorded as empty, or where the minimum needs no task.
    """
    found = []
    for job in jobs_of(state):
        core, running = core_of(job), frozenset(job.running())
        if job.spec.preemptible is not Preemptibility.SURPLUS or core == running:
            continue
        group, kept = job.shape.group, counting(job, (), running - core)
        if not core <= running or (job.uncovered and core):
            found.append(f"{job.uid} is protected in {sorted(core)}, which does not run")
        elif not job.uncovered and met(group, counting(job)) and not met(group, kept):
            found.append(f"{job.uid} is protected in {sorted(core)}, which is no minimum")
    return found


def limits_held(state: Columns) -> list[str]:
    """No queue exceeds its limit, or what it held when the limit was lowered, at any level."""
    uses = Uses(state)
    for one in all_held(state):
        if not one.stopping:
            uses.add(one.job.queue, one.place.amounts)
    return [
        f"{name} holds {held} {what}, limit {bound}"
        for name, slot in sorted(state.queues.slots.items())
        for what, held, bound in _over(uses.of[name], state.queues.ceiling(slot).all)
    ]


def gated_tasks_wait(state: Columns) -> list[str]:
    """No gated task runs or has a reservation."""
    return [
        f"{job.uid}[{index}] is gated and has a place"
        for job in jobs_of(state)
        for index in sorted(job.spec.gated)
        if index in job.rows or index in dict(job.reservation)
    ]


def only_leaves_hold_work(state: Columns) -> list[str]:
    """Workloads belong to existing queues that have no child queue."""
    parents = {rule.parent for rule in state.queues.rules if rule is not None}
    found = []
    for job in jobs_of(state):
        rule = state.queues.rules[job.queue]
        if rule is None or rule.name != job.spec.project or rule.name in parents:
            found.append(f"{job.uid} of {job.spec.project} is in queue {job.queue}")
        elif next(iter(path_names(state, job.queue))).name != job.spec.project:
            found.append(f"{job.uid} has another path than its queue")
    return found


def places_are_on_nodes(state: Columns) -> list[str]:
    """Every place names an existing node and devices of that node."""

    def impossible(place: Footprint) -> bool:
        there = state.nodes.facts[place.node]
        return there is None or any(device >= there.devices for device in place.devices)

    found = [f"{one.name} is nowhere" for one in all_held(state) if impossible(one.place)]
    found += [
        f"the reservation of {job.uid} is on no node"
        for job in jobs_of(state)
        for _, place in job.reservation
        if impossible(place)
    ]
    return found


STATE_INVARIANTS: tuple[Invariant, ...] = (
    no_device_over_capacity,
    whole_devices_have_one_owner,
    mig_slots_disjoint,
    tasks_hold_what_they_ask,
    no_row_has_two_tasks,
    reserved_once,
    reserved_for_waiting_tasks,
    non_preemptible_within_quota,
    cores_are_minima,
    limits_held,
    gated_tasks_wait,
    only_leaves_hold_work,
    places_are_on_nodes,
)


def check(state: Columns) -> list[str]:
    """All violations of the invariants over the state."""
    return [f"{each.__name__}: {one}" for each in STATE_INVARIANTS for one in each(state)]


def _over(held: list[int], bound: Triple) -> list[tuple[str, int, int]]:
    return [(RESOURCE_NAMES[r], held[r], bound[r]) for r in RESOURCES if held[r] > bound[r]]
