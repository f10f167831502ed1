"""What would fit without all victims is the same, kept up to date or counted anew."""

import numpy as np

from carrel_scheduler.core import State
from carrel_scheduler.core.actions.bounds import Bounds
from carrel_scheduler.core.cycle import Cycle
from carrel_scheduler.core.events import Event, TaskPlaced
from carrel_scheduler.core.placement import place
from carrel_scheduler.core.reasons import Token
from unit.core.situations import node, project, training


def _cycle() -> Cycle:
    events: list[Event] = [node(f"n{n}", 2) for n in range(4)]
    events += [project("a", 0), project("b", 8)]
    for number in range(6):
        queued = training(f"r{number}", "a", created_at=float(number))
        events += [queued, TaskPlaced(queued.uid, 0, f"n{number % 3}", (number // 3,), at=1.0)]
    events += [training("one", "b", 2), training("two", "b", 1, tasks=2)]
    state = State()
    for event in events:
        state.apply(event)
    return Cycle(state, 10.0)


def test_bounds_follow_what_is_held_and_evicted() -> None:
    cycle, slot = _cycle(), 0
    one, two = cycle.state.records.get("one"), cycle.state.records.get("two")
    victim = cycle.state.records.get("r0")
    assert one is not None
    assert two is not None
    assert victim is not None
    bounds, chosen = Bounds(cycle), cycle.evictable == slot
    found = [int(bounds.counts(two, "all", chosen).sum())]
    places = place(cycle.room, one.shape, cycle.eligible(None), soon=True)
    assert places is not None
    cycle.hold(one, places)
    found.append(int(bounds.counts(two, "all", cycle.evictable == slot).sum()))
    cycle.count_out(victim)
    cycle.give_way((victim,), two, Token.RECLAIMED)
    chosen = cycle.evictable == slot
    kept = bounds.counts(two, "all", chosen)
    found.append(int(kept.sum()))
    assert np.array_equal(kept, Bounds(cycle).counts(two, "all", chosen))
    assert found == [8, 6, 5]
