"""Candidates of two rules for one claim: the own queue's lower priority, and what others borrowed.

At first the cheapest set is looked for as if all lower priority of the own queue had left, so with
all rights that there may be. Where that set takes so little of it that the claim would not stand,
as much as the claim needs leaves first, and the rest is looked for again; those of whom neither the
claim nor the room has need stay after all.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.layers import LARGEST, Bools
from carrel_scheduler.core.preemption import pruning, vectorised
from carrel_scheduler.core.preemption.candidates import Times
from carrel_scheduler.core.preemption.minimum_runtimes import preempt_protects_s
from carrel_scheduler.core.preemption.node_prefilter import promising
from carrel_scheduler.core.preemption.own_queue import OwnSide, sum_of
from carrel_scheduler.core.preemption.search.model import GangRequest
from carrel_scheduler.core.preemption.sequential import Search
from carrel_scheduler.core.preemption.share_legality import is_protected, legal, wholly
from carrel_scheduler.core.preemption.victim_order import Giving, Share
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.resources import NONE, Triple
from carrel_scheduler.core.work.jobs import Job


def make_room(own: OwnSide, wish: GangRequest | None) -> bool:
    """Stop victims and hold their room.

    Args:
        own: who claims, and what may leave its queue.
        wish: its step as ``clearing`` understands it, if it does.
    """
    rights = own.rights(own.most)
    if own.gives(NONE, rights):
        return _after(own, wish, ())
    found = None if wish is None else _as_if_all_left(own, wish)
    if found is not None:
        return found
    first = own.least(lambda gone: own.rights(gone) is not None)
    if own.rights(sum_of(first)) is None:
        return False
    if _after(own, wish, first):
        return True
    every = own.least(lambda gone: own.gives(gone, rights))
    return len(every) > len(first) and _after(own, wish, every)


def _as_if_all_left(own: OwnSide, wish: GangRequest) -> bool | None:
    """The cheapest set with all rights there may be; ``None`` where another way has to be tried."""
    cycle, rights = own.cycle, own.rights(own.most)
    offer = _offer(own, wish, own.most)
    if offer is None:
        return None
    if offer.table is None:
        return False
    mark, (cause, told) = cycle.moves.mark(), own.causes(own.most)
    if vectorised.make_room(
        cycle, own.preemptor, wish, offer.table, offer.budgets, cause, _not_so, own=told
    ):
        if own.gives(own.gone, rights):
            return True
        cycle.moves.rollback(mark)
        return None
    return None if vectorised.are_few(offer.table) or offer.table.left_out else False


def _not_so() -> bool:
    """Nobody is looked for one by one."""
    return False


def _after(own: OwnSide, wish: GangRequest | None, leaving: Sequence[Share]) -> bool:
    """Make room after some of the own queue have left, so that the claim stands."""
    cycle, gone = own.cycle, sum_of(leaving)
    mark, causes = cycle.moves.mark(), own.causes(gone)
    before = pruning.promised_beyond(own, leaving)
    for share in leaving:
        for index in share.indices:
            cycle.moves.take_back(share.job, index, causes[1])
    offer = None if wish is None else _offer(own, wish, gone)
    if wish is None or offer is None:
        everybody = np.ones(len(cycle.queue_usage.used), np.bool_)
        victims = promising(cycle, own.preemptor, own.step, everybody)
        found = _one_by_one(own, gone, causes, victims)
    else:
        found = _in_offer(own, wish, offer, gone, causes)
    if not found:
        cycle.moves.rollback(mark)
        return False
    rights = own.rights(gone) if pruning.others_lose(own, mark) else None
    pruning.spare(own, leaving, before, rights)
    return True


def _in_offer(
    own: OwnSide,
    wish: GangRequest,
    offer: vectorised.Offer,
    gone: Triple,
    causes: tuple[Cause, Cause],
) -> bool:
    """Make room over arrays, and one by one where there are few."""
    table, (cause, told) = offer.table, causes
    if table is None:
        return False

    def one_by_one() -> bool:
        return _one_by_one(own, gone, causes, table.jobs())

    return vectorised.make_room(
        own.cycle, own.preemptor, wish, table, offer.budgets, cause, one_by_one, own=told
    )


def _one_by_one(
    own: OwnSide, gone: Triple, causes: tuple[Cause, Cause], victims: Iterable[Job]
) -> bool:
    """The search one by one; the claim is judged as if no more of the own queue left."""
    cycle, job, claim = own.cycle, own.preemptor, own.claim(gone)
    least = preempt_protects_s(cycle.queue_usage.table, job.queue, cycle.settings.min_runtime_s)

    some = [
        victim
        for victim in victims
        if victim.queue != job.queue or victim.spec.priority < job.spec.priority
    ]

    def protected(victim: Job) -> bool:
        if victim.queue == job.queue:
            return victim.started + least > cycle.now
        return is_protected(cycle, job, victim)

    def may_go(share: Share) -> bool:
        return share.job.queue == job.queue or legal(claim, share)

    def lies_beyond(share: Share) -> bool:
        return share.job.queue == job.queue or wholly(claim, share)

    def shares() -> Iterator[Share]:
        for share in Giving(cycle, some, protected).shares(may_go, lies_beyond):
            if share.job.queue != job.queue:
                claim.take(share.job.queue, share.amounts)
            yield share

    return Search(cycle, job, own.step, causes[0], own=causes[1]).run(shares())


def _offer(own: OwnSide, wish: GangRequest, gone: Triple) -> vectorised.Offer | None:
    """Those who may give way by either rule, and how much their queues may lose.

    ``gone`` has left already. ``None`` where ``clearing`` cannot tell.
    """
    cycle, job = own.cycle, own.preemptor
    budgets = vectorised.budgets_of(cycle, *own.entitled(gone))
    if budgets is None:
        return None
    budgets.excess[job.queue], budgets.open[job.queue] = NO_BOUND, True
    giving: Bools = np.asarray((budgets.excess > 0).any(axis=1))
    near = cycle.borrowers.copy()
    near[job.queue] = True
    below = np.full(len(giving), LARGEST, np.int64)
    below[job.queue] = job.spec.priority
    found = vectorised.offer(
        cycle, job, wish, giving, budgets, near=near, below=below, protected_s=_protected_s(own)
    )
    if found.table is None:
        return found
    return vectorised.Offer(found.table.that_hold(budgets.excess), budgets)


def _protected_s(own: OwnSide) -> Times | None:
    cycle, leaf = own.cycle, own.preemptor.queue
    least = preempt_protects_s(cycle.queue_usage.table, leaf, cycle.settings.min_runtime_s)
    found = vectorised.protected_s(cycle, leaf)
    if found is None and least:
        found = np.zeros(len(cycle.queue_usage.used))
    if found is not None:
        found[leaf] = least
    return found
