"""A search that cannot succeed ends by counting, before victims are taken one by one."""

from collections.abc import Callable, Iterable

import pytest

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.moves import Cause
from carrel_scheduler.core.cycle.placing import place
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Event
from carrel_scheduler.core.preemption import sequential
from carrel_scheduler.core.preemption.legality import ReclaimRequest
from carrel_scheduler.core.preemption.sequential import MANY, Search
from carrel_scheduler.core.preemption.victim_order import OrderedVictims, who_may_give
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.situations import NOW, node, queue, running, state_of, training


def crowd(*more: Event, nodes: int = MANY) -> State:
    """One GPU on each of many nodes, held by one queue; another asks for both GPUs of a node."""
    held = (running(training(f"r{k}", "b"), f"n{k}", 0) for k in range(nodes))
    return state_of(
        *(node(f"n{k}", 1) for k in range(nodes)),
        *(queue("a", nodes), queue("b", 0)),
        *(event for one in held for event in one),
        training("waits", "a", 2),
        *more,
    )


def search_of(state: State) -> Search:
    cycle = Cycle(state, NOW)
    return Search(cycle, state.job("waits"), (0,), Cause(Token.RECLAIMED, state.job("waits")))


def test_nobody_goes_where_all_together_would_not_do_and_nothing_has_moved() -> None:
    search = search_of(state := crowd())
    soon = search.cycle.free_capacity.soon.devices.copy()
    assert search.is_hopeless(list(state.holding.values()))
    assert not search.cycle.moves.log
    assert not search.cycle.moves.evicted.any()
    assert (search.cycle.free_capacity.soon.devices == soon).all()


def test_a_node_where_all_together_would_do_leaves_hope() -> None:
    wide = running(training("wide", "b", 2), "large", 0, 1)
    search = search_of(state := crowd(node("large", 2), *wide))
    assert not search.is_hopeless(list(state.holding.values()))
    assert search.is_hopeless([job for job in state.holding.values() if job.uid != "wide"])


def test_work_that_only_starts_in_this_cycle_counts_as_well() -> None:
    search = search_of(state := crowd(node("large", 2), training("new", "b")))
    cycle, new = search.cycle, state.job("new")
    assert place(cycle, new, (0,), soon=False)
    victims = [*state.holding.values(), new]
    assert not search.is_hopeless(victims)
    assert search.is_hopeless(victims[:-1])
    assert cycle.started(new)


def test_few_are_not_counted_and_nobody_is_hopeless() -> None:
    search = search_of(state := crowd())
    assert not search.is_hopeless(list(state.holding.values())[: MANY - 1])
    assert search.is_hopeless([])


@pytest.mark.parametrize(("quota", "gives"), [(3.0, True), (4.0, False)])
def test_who_may_give_is_in_a_queue_beyond_what_it_keeps(quota: float, *, gives: bool) -> None:
    state = state_of(
        *(node("n", 4), queue("a", 8), queue("b", quota, weight=(0, 0, 0))),
        *running(training("r", "b", 4), "n", 0, 1, 2, 3),
        training("waits", "a"),
    )
    cycle = Cycle(state, NOW)
    request = ReclaimRequest(cycle.queue_usage, state.job("waits").queue, (1000, 1000, 1024))
    found = who_may_give(request, state.holding.values())
    assert [job.uid for job in found] == (["r"] if gives else [])


def test_a_hopeless_reclaim_orders_no_victims(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Cycle] = []

    def ordered(
        cycle: Cycle, jobs: Iterable[JobInfo], protected: Callable[[JobInfo], bool]
    ) -> OrderedVictims:
        asked.append(cycle)
        return OrderedVictims(cycle, jobs, protected)

    monkeypatch.setattr(sequential, "OrderedVictims", ordered)
    plan = decide(crowd(node("large", 2, labels=(("broken", "yes"),), schedulable=False)), NOW)
    assert not plan.evictions
    assert not asked
    wide = running(training("wide", "b", 2), "large", 0, 1)
    assert [one.uid for one in decide(crowd(node("large", 2), *wide), NOW).evictions] == ["wide"]
    assert asked
