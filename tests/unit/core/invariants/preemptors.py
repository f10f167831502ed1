"""Invariants of the preemptors of every plan: who may take from other queues.

The victims' side of the same rule stands in ``evictions``.
"""

from carrel_scheduler.core.invariants.recount import Uses, all_held
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import added
from unit.core.invariants.after import After

GIVE_WAY = (Token.RECLAIMED, Token.PREEMPTED, Token.CONSOLIDATED)


def claims_stay_within_the_fair_share(after: After) -> list[str]:
    """A queue that takes from others ends, with all that it keeps, within its fair share.

    Of GPUs, and but for claims by a quota in a group of nodes (``group_quotas``). Whatever else
    gets room in the plan without starting may have got it later, so it is not counted; nor is what
    gives way, in whichever order. Who grows may grow on by other rules.
    """
    uses, found = _kept(after), []
    claims = (
        one
        for one in after.plan.evictions
        if one.reason.token is Token.RECLAIMED and not one.reason.detail
    )
    for uid in dict.fromkeys(one.reason.workload_uid for one in claims):
        job = after.state.job(uid)
        if job.shape.elastic or uid in after.starts:
            continue
        uses.add(job.queue, added(place.amounts for place in after.holds.get(uid, {}).values()))
        name = after.state.queues.rule(job.queue).name
        used, fair = uses.of[name][0], after.plan.fair_share[name]
        if used > fair:
            found.append(f"{uid} takes from others and {name} has {used} of {fair}")
    return found


def _kept(after: After) -> Uses:
    """Per queue what runs and goes on, what starts, and what was promised before."""
    uses = Uses(after.state)
    for one in all_held(after.state):
        uid = one.job.uid
        eviction = after.evictions.get(uid)
        leaves = eviction is not None and eviction.reason.token in GIVE_WAY
        if not one.stopping and not (leaves and one.index in after.stops[uid]):
            uses.add(one.job.queue, one.place.amounts)
    preemptors = {one.reason.workload_uid for one in after.plan.evictions}
    for uid, places in sorted(after.starts.items()):
        uses.add(after.state.job(uid).queue, added(place.amounts for place in places.values()))
    for uid in sorted(set(after.state.reserved) - preemptors - set(after.starts)):
        kept = [p for i, p in after.holds.get(uid, {}).items() if i not in after.fresh.get(uid, ())]
        uses.add(after.state.job(uid).queue, added(place.amounts for place in kept))
    return uses
