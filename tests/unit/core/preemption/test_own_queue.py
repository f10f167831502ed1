"""Who left its queue for a claim stays where neither the claim nor the room needs it."""

import numpy as np
import pytest

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.events import CapacityReserved, Event
from carrel_scheduler.core.preemption import own_queue
from carrel_scheduler.core.preemption.legality import Budgets
from carrel_scheduler.core.preemption.own_queue import OwnQueue
from carrel_scheduler.core.preemption.preempt_and_reclaim import _after
from carrel_scheduler.core.settings import DEFAULTS
from unit.core.situations import node, queue, running, state_of, training

NOW = 1000.0


def own_side(*more: Event, quota: float = 3, far: int = 1) -> OwnQueue:
    """Two tasks of one queue on two nodes; who claims may use the GPU of node `m` only."""
    state = state_of(
        node("n", far + 1),
        node("m", 1),
        queue("a", quota, weight=(0, 0, 0)),
        queue("b", 0),
        *running(training("far", "a", far, priority=10), "n", *range(far)),
        *running(training("near", "a", 1, priority=20), "m", 0),
        *running(training("lent", "b", 1), "n", far),
        training("waits", "b", 1, created_at=800.0),
        training("urgent", "a", 1, priority=80, nodes=("m",)),
        *more,
        settings=DEFAULTS,
    )
    return OwnQueue(Cycle(state, NOW), state.job("urgent"), (0,))


def staying(own: OwnQueue, budgets: Budgets | None, *, taken: bool = False) -> set[str]:
    """Uids of those who stay once all of the own queue has left and the claim has its place.

    With ``taken`` others got what the first of them had on node `n`.
    """
    cycle, leaving = own.cycle, own.least(lambda _: False)
    before = own_queue.overcommitted(own, leaving)
    room = cycle.state.tasks.footprint(cycle.state.job("far").rows[0])
    for unit in leaving:
        for index in unit.indices:
            cycle.moves.take_back(unit.job, index, own.causes(own.most)[1])
    assert place(cycle, own.preemptor, own.step, soon=True)
    if taken:
        cycle.moves.reserve(cycle.state.job("waits"), 0, room, fixed=False)
    own_queue.spare(own, leaving, before, budgets)
    return {unit.job.uid for unit in leaving} & set(cycle.moves.reserved)


def test_whose_room_is_of_no_use_stays() -> None:
    assert staying(own_side(), None) == {"far"}
    assert staying(own_side(), None, taken=True) == set()


def test_who_runs_on_room_that_is_held_for_others_later_stays() -> None:
    """It was so before, and nobody may make it leave earlier for that."""
    own = own_side(CapacityReserved("waits", (("n", (0,), 0),)))
    assert staying(own, None) == {"far"}


@pytest.mark.parametrize(("quota", "stays"), [(1, set()), (2, {"far"})])
def test_who_is_needed_for_the_right_leaves_where_others_give_way(
    quota: float, stays: set[str]
) -> None:
    own = own_side(quota=quota)
    assert staying(own, own.budgets(own.most)) == stays
    assert staying(own_side(quota=quota), None) == {"far"}


def test_rights_keep_nobody_away_where_only_the_own_queue_gave_way() -> None:
    """The claim on others stands only without `far`; but `near` alone makes the room."""
    own = own_side(quota=2, far=2)
    leaving = [unit for unit in own.least(lambda _: False) if unit.job.uid == "far"]
    assert _after(own, None, leaving)
    assert own.cycle.moves.evicted_of(own.cycle.state.job("near")) == [0]
    assert own.cycle.moves.evicted_of(own.cycle.state.job("lent")) == []
    assert "far" in own.cycle.moves.reserved


@pytest.mark.parametrize("together", [False, True])
def test_only_what_other_queues_lose_needs_a_right(*, together: bool) -> None:
    own = own_side()
    moves, cause, jobs = own.cycle.moves, own.causes(own.most)[0], own.cycle.state.job
    for uid, lost in (("near", False), ("lent", True)):
        if together:
            moves.evict_many(np.array([jobs(uid).rows[0]]), cause)
        else:
            moves.evict(jobs(uid), 0, cause)
        assert own_queue.others_lose(own, 0) is lost
    assert not own_queue.others_lose(own, moves.mark())
