"""Invariants of the places of every plan, on the state it was made from.

Functions over a state and a plan, like those of ``invariants``; everything is counted from the
plan's single decisions (``After``). Who may give way is asked in ``evictions``.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from carrel_scheduler.core.columns import Columns
from carrel_scheduler.core.events import Preemptibility
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.invariants.recount import (
    Uses,
    all_held,
    below_minimum,
    core_of,
    counting,
    met,
    path_names,
    tasks_in,
)
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.mig import has_profile
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.requests import HOST, IN_GROUP
from carrel_scheduler.core.resources import MILLI, UNLIMITED, added
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.invariants.after import After, Places

PlanInvariant = Callable[[After], list[str]]
Key = tuple[str, int, int]
"""``device``, index, node; or ``host``, row, node."""


def bindings_take_free_room(after: After) -> list[str]:
    """Starts lie on capacity that no task holds, also CPU, memory and MIG slots."""
    taken, slots = taken_by_tasks(after.state)
    started: Counter[Key] = Counter()
    found = []
    for job, index, place in _all(after.state, after.starts):
        for device in place.devices:
            key = (device, place.node)
            started["device", *key] += place.share
            if slots.get(key, 0) & place.slots:
                found.append(f"{job.uid}[{index}] starts on memory slots in use")
            slots[key] = slots.get(key, 0) | place.slots
            if key[0] in after.state.nodes.fact(place.node).broken_devices:
                found.append(f"{job.uid}[{index}] starts on a broken device")
        for row, amount in enumerate(place.host):
            started["host", row, place.node] += amount
    for where, amount in started.items():
        if amount and taken[where] + amount > capacity_of(after.state, where):
            found.append(f"{where} holds {taken[where]}, and {amount} start there")
    return found


def holds_are_honoured(after: After) -> list[str]:
    """Room promised to others is neither started on nor promised again.

    Wherever the plan starts something or makes room by stops: what is free after the starts and
    what is coming covers all promises. Only room that is reserved for later may run still, also on
    what starts before it is reserved.
    """
    taken, slots = taken_by_tasks(after.state)
    coming, coming_slots = _coming(after.state, after)
    held: Counter[Key] = Counter()
    touched: set[Key] = set()
    preemptors = {one.reason.workload_uid for one in after.plan.evictions}
    found = []
    for job, index, place in after.new_places():
        if index in after.starts.get(job.uid, ()) or job.uid in preemptors:
            touched.update(("device", device, place.node) for device in place.devices)
            touched.update(("host", row, place.node) for row, some in enumerate(place.host) if some)
    for _, _, place in _all(after.state, after.starts):
        _count(taken, slots, place)
    promised_slots: dict[tuple[int, int], int] = {}
    for job, index, place in _all(after.state, after.holds):
        fresh = index in after.fresh.get(job.uid, ())
        if fresh and job.uid not in preemptors and index not in after.stops.get(job.uid, ()):
            continue
        for device in place.devices:
            there = ~slots.get((device, place.node), 0) | coming_slots.get((device, place.node), 0)
            mine = fresh and job.uid in preemptors
            if mine and place.slots & ~(there & ~promised_slots.get((device, place.node), 0)):
                found.append(f"{job.uid}[{index}] is promised memory slots of others")
        _count(held, promised_slots, place)
    for key in sorted(touched):
        free = capacity_of(after.state, key) - taken[key]
        if held[key] > max(free, 0) + coming[key]:
            found.append(f"{key}: {free} free, {coming[key]} coming, {held[key]} promised")
    return found


def starts_keep_to_rules(after: After) -> list[str]:
    """Work that starts or gets capacity reserved stays within limits and quotas at every level.

    Within quota where borrowing is off, and in its non-preemptible part. What only moves takes no
    more than it did.
    """
    uses, fixed = uses_after(after.state, after)
    found = []
    for job, index, place in after.new_places():
        if index in after.stops.get(job.uid, ()):
            continue
        core = index in core_of(job, _indices(after, job), after.stops.get(job.uid, ()))
        for rule in path_names(after.state, job.queue):
            bounds = [("limit", uses, rule.limit)]
            if not rule.over_quota:
                bounds.append(("quota without borrowing", uses, rule.quota))
            if core:
                bounds.append(("quota of non-preemptible work", fixed, rule.quota))
            for what, sums, bound in bounds:
                for r, most in enumerate(bound.as_tuple()):
                    if place.amounts[r] and most != UNLIMITED and sums.of[rule.name][r] > most:
                        held = sums.of[rule.name]
                        found.append(f"{job.uid}[{index}]: {what} of {rule.name}, {r}: {held}")
    return found + _group_limits_kept(after)


def _group_limits_kept(after: After) -> list[str]:
    """The same for limits in groups of nodes."""
    state = after.state
    rules = {rule.name: dict(rule.group_limits) for rule in state.queues.rules if rule is not None}
    if not any(rules.values()):
        return []
    used: Counter[tuple[str, str]] = Counter()
    for uid in sorted({*state.jobs.by_uid}):
        job, stopped = state.job(uid), after.stops.get(uid, ())
        places = {i: state.tasks.footprint(job.rows[i]) for i in job.running() if i not in stopped}
        places |= {**after.starts.get(uid, {}), **after.holds.get(uid, {})}
        for place in places.values():
            for rule in path_names(state, job.queue):
                used[rule.name, group_of(state, place)] += place.amounts[0]
    found = []
    for job, index, place in after.new_places():
        group = group_of(state, place)
        for rule in path_names(state, job.queue):
            over = used[rule.name, group] > rules[rule.name].get(group, NO_BOUND)
            if place.amounts[0] and over and index not in after.stops.get(job.uid, ()):
                found.append(f"{job.uid}[{index}]: limit of {rule.name} in group {group}")
    return found


def group_of(state: Columns, place: Footprint) -> str:
    return dict(state.nodes.fact(place.node).labels).get(IN_GROUP, "")


def gangs_start_whole(after: After) -> list[str]:
    """A workload that starts something, or gets room held, has its minima with it.

    And so has each group of which something then runs. What only moves is as whole as it was.
    """
    found = []
    for uid in sorted({*after.starts, *after.fresh}):
        if uid in after.evictions and after.evictions[uid].moved:
            continue
        job = after.state.job(uid)
        there = counting(job, _indices(after, job), after.stops.get(uid, ()))
        if not met(job.shape.group, there):
            found.append(f"{uid} starts below its minimum: {there}")
        elif below_minimum(job.shape.group, there) and not below_minimum(
            job.shape.group, counting(job)
        ):
            found.append(f"a group of {uid} starts below its minimum: {there}")
    return found


def nothing_starts_twice(after: After) -> list[str]:
    """Tasks that start or get room held wait for it: none runs, is gated, or has ended."""
    times = Counter((one.uid, one.index) for one in after.plan.bindings)
    found = [f"{task} starts {count} times" for task, count in times.items() if count > 1]
    for job, index, _ in after.new_places():
        moves = index in after.stops.get(job.uid, ()) or index in job.halted
        starts = index in after.starts.get(job.uid, ())
        if index not in job.pending() and (starts or not moves):
            found.append(f"{job.uid}[{index}] gets a place and does not wait")
    return found


def required_topology_respected(after: After) -> list[str]:
    """The tasks of a group with a required level lie in one domain of it."""
    found = []
    for uid in sorted({*after.starts, *after.fresh}):
        job = after.state.job(uid)
        nodes = after.members(job)
        new = {**after.starts.get(uid, {}), **after.fresh.get(uid, {})}
        for key, indices in _required(job.shape.group, 0):
            domains = {_value(after.state, nodes[i], key) for i in indices if i in nodes}
            if any(i in new for i in indices) and (len(domains) != 1 or "" in domains):
                found.append(f"{uid}: {sorted(indices)} lie in {sorted(domains)} of {key}")
    return found


def members_apart(after: After) -> list[str]:
    """Members that are to lie on different values of a label do."""
    found = []
    for uid in sorted({*after.starts, *after.fresh}):
        job = after.state.job(uid)
        nodes = after.members(job)
        new = {**after.starts.get(uid, {}), **after.fresh.get(uid, {})}
        for index in sorted(new):
            key = job.shape.requests[index].where.apart
            if not key:
                continue
            mine = _value(after.state, nodes[index], key)
            others = [i for i in nodes if i != index and job.shape.requests[i].where.apart == key]
            if not mine or any(_value(after.state, nodes[i], key) == mine for i in others):
                found.append(f"{uid}[{index}] lies with others on {mine!r} of {key}")
    return found


def node_conditions_respected(after: After) -> list[str]:
    """Names, labels, taints, drains and kinds of GPUs let the task onto its node."""
    return [
        f"{job.uid}[{index}] may not be on {fact.name}: {why}"
        for job, index, place in after.new_places()
        for fact in [after.state.nodes.fact(place.node)]
        for why in [_unsuitable(after.state, job, index, place)]
        if why
    ]


def removals_are_in_the_way(after: After) -> list[str]:
    """MIG instances that are removed are unused, and another instance starts on their slots."""
    kept = {
        (after.state.nodes.names[node], device, bits)
        for (node, device), instances in after.state.warm.all().items()
        for _, bits in instances
    }
    needed: dict[tuple[str, int], int] = {}
    for _, _, place in _all(after.state, after.starts):
        for device in place.devices:
            key = (after.state.nodes.names[place.node], device)
            needed[key] = needed.get(key, 0) | place.slots
    return [
        f"{one} is used or in nobody's way"
        for one in after.plan.removals
        if (one.node, one.device, one.slots) not in kept
        or not needed.get((one.node, one.device), 0) & one.slots
    ]


PLACE_INVARIANTS: tuple[PlanInvariant, ...] = (
    bindings_take_free_room,
    holds_are_honoured,
    starts_keep_to_rules,
    gangs_start_whole,
    nothing_starts_twice,
    required_topology_respected,
    members_apart,
    node_conditions_respected,
    removals_are_in_the_way,
)


def _all(state: Columns, places: dict[str, Places]) -> Iterator[tuple[JobInfo, int, Footprint]]:
    for uid in sorted(places):
        for index, place in sorted(places[uid].items()):
            yield state.job(uid), index, place


def _indices(after: After, job: JobInfo) -> set[int]:
    return {*after.starts.get(job.uid, ()), *after.fresh.get(job.uid, ())}


def capacity_of(state: Columns, key: Key) -> int:
    """The capacity of a key."""
    what, place, node = key
    return MILLI if what == "device" else int(state.nodes.capacity[place, node])


def _count(sums: Counter[Key], slots: dict[tuple[int, int], int], place: Footprint) -> None:
    for device in place.devices:
        sums["device", device, place.node] += place.share
        key = (device, place.node)
        slots[key] = slots.get(key, 0) | place.slots
    for row, amount in enumerate(place.host):
        sums["host", row, place.node] += amount


def taken_by_tasks(state: Columns) -> tuple[Counter[Key], dict[tuple[int, int], int]]:
    """The amounts that tasks hold, and the MIG slots in use by device and node."""
    taken: Counter[Key] = Counter()
    slots: dict[tuple[int, int], int] = {}
    for one in all_held(state):
        _count(taken, slots, one.place)
    return taken, slots


def _coming(state: Columns, after: After) -> tuple[Counter[Key], dict[tuple[int, int], int]]:
    coming: Counter[Key] = Counter()
    slots: dict[tuple[int, int], int] = {}
    for one in all_held(state):
        stops = one.index in after.stops.get(one.job.uid, ())
        if (one.stopping or stops) and not one.stuck:
            _count(coming, slots, one.place)
    return coming, slots


def uses_after(state: Columns, after: After) -> tuple[Uses, Uses]:
    """Per queue: what runs, starts or is promised afterwards, and the non-preemptible part."""
    uses, fixed = Uses(state), Uses(state)
    for uid in sorted({*state.jobs.by_uid}):
        job = state.job(uid)
        stopped = after.stops.get(uid, ())
        places = {i: state.tasks.footprint(job.rows[i]) for i in job.running() if i not in stopped}
        new = {**after.starts.get(uid, {}), **after.holds.get(uid, {})}
        places |= new
        core = core_of(job, new, stopped) if job.spec.preemptible is not Preemptibility.YES else ()
        uses.add(job.queue, added(place.amounts for place in places.values()))
        fixed.add(job.queue, added(places[i].amounts for i in core if i in places))
    return uses, fixed


def _required(group: Group, first: int) -> Iterator[tuple[str, range]]:
    if group.level is not None and group.level.required:
        yield group.level.required, range(first, first + tasks_in(group))
    for child in group.groups:
        yield from _required(child, first)
        first += tasks_in(child)


def _value(state: Columns, node: int, key: str) -> str:
    """The node's value of a level's key, with those of the levels above it."""
    fact = state.nodes.fact(node)
    if key == HOST:
        return fact.name
    labels = dict(fact.labels)
    levels = next((keys for keys in state.topologies.known().values() if key in keys), (key,))
    values = [labels.get(each, "") for each in levels[: levels.index(key) + 1]]
    return "/".join(values) if all(values) else ""


def _unsuitable(state: Columns, job: JobInfo, index: int, place: Footprint) -> str:
    request, fact = job.shape.requests[index], state.nodes.fact(place.node)
    where, labels = request.where, {**dict(fact.labels), HOST: fact.name}
    shares = request.share_milli or request.gpu_memory_mib or request.mig_profile
    fits = {
        "not schedulable": fact.schedulable and not fact.draining,
        "not named": where.nodes is None or fact.name in where.nodes,
        "labels": all(labels.get(key) in values for key, values in where.labels),
        "taints": "*" in where.tolerations
        or all({taint, taint.split("=")[0]} & where.tolerations for taint in fact.taints),
        "shares where MIG is": not (fact.mig_model and request.share_milli),
        "profile": not request.mig_profile or has_profile(fact.mig_model, request.mig_profile),
        "memory unknown": not request.gpu_memory_mib or fact.gpu_memory_mib > 0 or fact.mig_model,
        "device": not shares or place.share > 0,
    }
    return ", ".join(why for why, fine in fits.items() if not fine)
