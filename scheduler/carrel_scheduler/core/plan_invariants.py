"""What must hold for every plan, given the state it was made from.

The evictions are replayed one after another: each claimer's victims, then the claimer itself.
"""

from collections import Counter

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import RoomPromised, TaskPlaced, TaskReleasing
from carrel_scheduler.core.plan import Eviction, Plan
from carrel_scheduler.core.projects import Triple
from carrel_scheduler.core.resources import UNLIMITED
from carrel_scheduler.core.standings import RESOURCES
from carrel_scheduler.core.state import State
from carrel_scheduler.core.workloads import Record


def check_plan(state: State, plan: Plan) -> list[str]:
    """All violations of the invariants over a plan."""
    return [violation for invariant in PLAN_INVARIANTS for violation in invariant(state, plan)]


def victims_may_be_stopped(state: State, plan: Plan) -> list[str]:
    """Victims run, are preemptible, and were not told to stop before."""
    found = []
    for eviction in plan.evictions:
        record = state.records.get(eviction.uid)
        if record is None or not record.evictable:
            found.append(f"{eviction.uid} may not be evicted")
    return found


def no_victim_twice(state: State, plan: Plan) -> list[str]:  # noqa: ARG001 - one signature for all
    """Nobody is evicted twice in a plan."""
    times = Counter(eviction.uid for eviction in plan.evictions)
    return [f"{uid} is evicted {count} times" for uid, count in times.items() if count > 1]


def no_victim_within_quota(state: State, plan: Plan) -> list[str]:
    """Across projects only work of a project beyond its quota gives way."""
    used = _use_after_starts(state, plan)
    held = {nomination.uid for nomination in plan.nominations if nomination.places}
    found = []
    for claimer_uid, evictions in _by_claimer(plan):
        claimer = state.records.get(claimer_uid)
        if claimer is None or claimer_uid not in held:
            found.append(f"evictions for {claimer_uid}, which gets no room by them")
            continue
        for eviction in evictions:
            victim = state.records.get(eviction.uid)
            if victim is None:
                continue
            found += _wrong_victim(state, used[victim.project], victim, claimer)
            _add(used[victim.project], _held_by(victim), -1)
        _add(used[claimer.project], claimer.demand, 1)
    return found


def bindings_take_free_room(state: State, plan: Plan) -> list[str]:
    """Carried out in order, the plan contradicts nothing, and CPU and memory are really there."""
    trial = state.copy()
    try:
        for binding in plan.bindings:
            place = (binding.node, binding.devices)
            trial.apply(TaskPlaced(binding.uid, binding.index, *place, at=0.0))
        for eviction in plan.evictions:
            record = trial.records.edit(eviction.uid)
            for index in sorted(record.rows):
                trial.apply(TaskReleasing(eviction.uid, index))
        for nomination in plan.nominations:
            trial.apply(RoomPromised(nomination.uid, nomination.places))
    except InvalidEvent as error:
        return [f"the plan contradicts the state: {error}"]
    bound_nodes = {binding.node for binding in plan.bindings}
    return [
        f"bindings overfill CPU or memory of {name}"
        for name in sorted(bound_nodes)
        if int(trial.nodes.free.host[:, trial.nodes.slots[name]].min()) < 0
    ]


def promised_room_is_kept(state: State, plan: Plan) -> list[str]:
    """Nobody starts on devices that stay promised to another."""
    lifted = {nomination.uid for nomination in plan.nominations}
    lifted |= {binding.uid for binding in plan.bindings}
    promised = {
        (place.node, device): record.spec.uid
        for record in state.records
        if record.spec.uid not in lifted
        for place in record.promise
        for device in place.devices
    }
    return [
        f"{binding.uid} starts on room promised to {promised[slot, device]}"
        for binding in plan.bindings
        for slot in [state.nodes.slots[binding.node]]
        for device in binding.devices
        if (slot, device) in promised
    ]


def every_waiter_has_one_answer(state: State, plan: Plan) -> list[str]:
    """Each waiting workload starts with all its tasks, or has a reason; nobody else has."""
    bound = Counter(binding.uid for binding in plan.bindings)
    found = []
    for record in state.waiting_records():
        uid, tasks = record.spec.uid, record.spec.tasks
        if bound[uid] not in (0, tasks):
            found.append(f"{bound[uid]} of {tasks} tasks of {uid} start")
        if (uid in bound) == (uid in plan.reasons):
            found.append(f"{uid} must start or have a reason, and not both")
    waiting = {record.spec.uid for record in state.waiting_records()}
    found += [f"{uid} does not wait" for uid in sorted((bound.keys() | plan.reasons) - waiting)]
    if sorted(plan.queue) != sorted(waiting):
        found.append("the queue is not the list of waiting workloads")
    return found


PLAN_INVARIANTS = (
    victims_may_be_stopped,
    no_victim_twice,
    no_victim_within_quota,
    bindings_take_free_room,
    promised_room_is_kept,
    every_waiter_has_one_answer,
)


def _by_claimer(plan: Plan) -> list[tuple[str, list[Eviction]]]:
    grouped: dict[str, list[Eviction]] = {}
    for eviction in plan.evictions:
        grouped.setdefault(eviction.reason.workload_uid, []).append(eviction)
    return list(grouped.items())


def _use_after_starts(state: State, plan: Plan) -> dict[int, list[int]]:
    """Per project: what is used or promised once the bindings and free promises are made."""
    used: dict[int, list[int]] = {
        slot: [int(amount) for amount in state.project_columns.used[slot]]
        for slot in state.project_columns.slots.values()
    }
    claimers = {eviction.reason.workload_uid for eviction in plan.evictions}
    served = {binding.uid for binding in plan.bindings}
    places = {nomination.uid: bool(nomination.places) for nomination in plan.nominations}
    for record in state.waiting_records():
        uid = record.spec.uid
        has_room = uid in served or places.get(uid, bool(record.promise))
        if has_room and uid not in claimers:
            _add(used[record.project], record.demand, 1)
    return used


def _wrong_victim(state: State, used: list[int], victim: Record, claimer: Record) -> list[str]:
    if victim.project == claimer.project:
        if victim.spec.priority < claimer.spec.priority:
            return []
        return [f"{victim.spec.uid} gives way to its own project without a lower priority"]
    quota = state.project_columns.rule(victim.project).quota.as_tuple()
    held = _held_by(victim)
    beyond = any(
        claimer.demand[r] and held[r] and quota[r] != UNLIMITED and used[r] > quota[r]
        for r in RESOURCES
    )
    return [] if beyond else [f"{victim.spec.uid} gives way although its project is within quota"]


def _held_by(record: Record) -> Triple:
    gpu, cpu, memory = record.spec.request.as_tuple()
    tasks = len(record.rows)
    return gpu * tasks, cpu * tasks, memory * tasks


def _add(used: list[int], amounts: Triple, sign: int) -> None:
    for resource in RESOURCES:
        used[resource] += sign * amounts[resource]
