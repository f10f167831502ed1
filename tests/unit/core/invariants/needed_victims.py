"""Invariant: no work is evicted in vain, for each eviction of every plan."""

from collections.abc import Iterator
from dataclasses import replace

from carrel_scheduler.core.invariants.recount import path_names
from carrel_scheduler.core.plan import Eviction
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import UNLIMITED, added
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.invariants.after import After, Places
from unit.core.invariants.plans import (
    capacity_of,
    holds_are_honoured,
    starts_keep_to_rules,
    taken_by_tasks,
    uses_after,
)


def victims_are_needed(after: After) -> list[str]:
    """Had one stayed who gives way, the room given would lie on its own, or go beyond a limit.

    Claims for which some move are left out, since then room is needed for these as well, also such
    as has only just got a place and got another; so are claims by two rules, for which some leave
    only so that they stand (of the others some may not have run yet), and claims to room that was
    reserved earlier, where others still run. A later claim may take more from a queue than it gets,
    so for a limit somebody must have been needed with later claims or without them. Who claims
    step by step may take with the next one what would have been enough for the one before.
    Whoever asks for GPU memory counts for the most that it may take until it has a place, so what
    leaves may have been needed for the quota. Who is ended for no claim is so after all claims. On
    a node that lost capacity what is missing has to leave first.
    """
    found = []
    forced = {one.uid for one in after.plan.evictions if not one.reason.workload_uid}
    overfull = _overfull(after)
    for one in _plain(after):
        left = _nodes_left(after, one)
        if left & overfull or _serve_others(after, one, left):
            continue
        stops = {uid: told for uid, told in after.stops.items() if uid not in forced}
        stops[one.uid] = tuple(i for i in stops[one.uid] if i not in _stopped(after, one))
        spared = replace(after, stops=stops)
        if one.reason.token is Token.PREEMPTED and _beyond_rights(spared, one):
            continue
        beyond = starts_keep_to_rules(spared) or starts_keep_to_rules(_without_later(spared, one))
        if not (holds_are_honoured(spared) or beyond):
            preemptor = one.reason.workload_uid
            found.append(f"{one.uid} gives way to {preemptor}, which has room without it")
    return found


def _without_later(after: After, one: Eviction) -> After:
    """The state as if nobody had claimed anything after the claim for which it gives way."""
    evictions = after.plan.evictions
    ordered = [uid for uid in dict.fromkeys(e.reason.workload_uid for e in evictions) if uid]
    later = set(ordered[ordered.index(one.reason.workload_uid) + 1 :])
    leave = {each.uid for each in evictions if each.reason.workload_uid not in later}
    stops = {uid: told for uid, told in after.stops.items() if uid in leave}
    holds = {uid: places for uid, places in after.holds.items() if uid not in later}
    fresh = {uid: places for uid, places in after.fresh.items() if uid not in later}
    return replace(after, stops=stops, holds=holds, fresh=fresh)


def _plain(after: After) -> Iterator[Eviction]:
    """Evictions for claims by one rule in which nobody moves."""
    grouped: dict[str, list[Eviction]] = {}
    for one in after.plan.evictions:
        grouped.setdefault(one.reason.workload_uid, []).append(one)
    for uid, evictions in grouped.items():
        tokens = {one.reason.token for one in evictions}
        moves = any(one.moved or one.uid in after.fresh for one in evictions)
        plain = tokens in ({Token.RECLAIMED}, {Token.PREEMPTED}) and not moves
        if plain and uid in after.fresh and _claims_once(after.state.job(uid), after.fresh[uid]):
            yield from evictions


def _claims_once(job: JobInfo, places: Places) -> bool:
    """Whether all its places follow from one claim, for no more than it asks for."""
    grows = len(places) > len(job.shape.first_step)
    return not grows and not any(request.gpu_memory_mib for request in job.shape.requests)


def _stopped(after: After, one: Eviction) -> tuple[int, ...]:
    return one.indices or tuple(after.state.job(one.uid).running())


def _nodes_left(after: After, one: Eviction) -> set[int]:
    job, node = after.state.job(one.uid), after.state.tasks.node
    return {node.item(job.rows[index]) for index in _stopped(after, one)}


def _serve_others(after: After, one: Eviction, left: set[int]) -> bool:
    """Whether others than who claims get room held on the nodes that are left."""
    others = (after.fresh[uid].values() for uid in after.fresh if uid != one.reason.workload_uid)
    return any(place.node in left for places in others for place in places)


def _overfull(after: After) -> set[int]:
    """Nodes that hold more than they have."""
    taken, _ = taken_by_tasks(after.state)
    return {key[2] for key, some in taken.items() if some > capacity_of(after.state, key)}


def _beyond_rights(after: After, one: Eviction) -> bool:
    """Whether its queue, or one above, is beyond its quota or fair share in what it holds."""
    job, tasks = after.state.job(one.uid), after.state.tasks
    held = added(tasks.footprint(job.rows[index]).amounts for index in _stopped(after, one))
    uses, _ = uses_after(after.state, after)
    fair = after.plan.fair_share
    if held[0] and any(
        uses.of[r.name][0] > fair[r.name] for r in path_names(after.state, job.queue)
    ):
        return True
    return any(
        some and quota != UNLIMITED and used > quota
        for rule in path_names(after.state, job.queue)
        for some, quota, used in zip(held, rule.quota.as_tuple(), uses.of[rule.name], strict=True)
    )
