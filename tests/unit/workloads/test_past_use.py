"""Past use: from the ledger's rows to the shares of the core, also after a restart."""

import pytest

from carrel_scheduler.core.events import QueueSet
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from carrel_scheduler.workloads.reconcile import usage_history
from carrel_scheduler.workloads.reconcile.usage_history import HALF_LIVES, PastUse
from unit.workloads.harness import SchedulerHarness

HOUR_S = 3600.0
OPEN = ResourceVector(UNLIMITED, UNLIMITED, UNLIMITED)


async def two_of_four_gpus_for_an_hour(harness: SchedulerHarness) -> None:
    await harness.project("a", 4)
    await harness.project("b", 4)
    training = await harness.submit("a", "a1", 2)
    await harness.runs(training)
    await harness.wait(HOUR_S)
    await harness.ends(training)


async def test_use_counts_half_as_much_after_each_half_life(harness: SchedulerHarness) -> None:
    await two_of_four_gpus_for_an_hour(harness)
    past = PastUse(harness.ledger, HOUR_S)
    whole = 1 - 0.5**HALF_LIVES
    used = (await past.follow(harness.now)).average
    assert used["a"][0] == pytest.approx(2000 * 0.5 / whole, rel=1e-3)
    assert used["a"][1:] == pytest.approx((100 * 0.5 / whole, 0.5 / whole), rel=1e-3)
    assert used.get("b", (0.0,))[0] == 0.0
    for _ in range(12):
        harness.now += HOUR_S / 12
        used = (await past.follow(harness.now)).average
    assert used["a"][0] == pytest.approx(2000 * 0.25, rel=0.01)
    fresh = (await PastUse(harness.ledger, HOUR_S).follow(harness.now)).average
    assert fresh["a"] == pytest.approx(used["a"], rel=0.01)


async def test_the_core_is_told_parts_of_the_cluster_departments_included(
    harness: SchedulerHarness,
) -> None:
    await two_of_four_gpus_for_an_hour(harness)
    state = harness.loop.state
    state.apply(QueueSet("above", OPEN))
    state.apply(QueueSet("x", OPEN, parent="above"))
    state.apply(QueueSet("y", OPEN, parent="above"))
    used = {"x": (1000.0, 0.0, 0.0), "y": (500.0, 0.0, 0.0), "gone": (9.0, 9.0, 9.0)}
    usage_history.take(state, used)
    told = {name: state.queues.usage[slot].tolist() for name, slot in state.queues.slots.items()}
    assert told["above"] == [375_000, 0, 0]
    assert (told["x"], told["y"], told["a"]) == ([250_000, 0, 0], [125_000, 0, 0], [0, 0, 0])
    version = state.version
    usage_history.take(state, used)
    assert state.version == version, "nothing new"
    usage_history.take(state, {})
    assert not state.queues.usage.any()


async def test_the_loop_hears_of_it(harness: SchedulerHarness) -> None:
    await two_of_four_gpus_for_an_hour(harness)
    harness.loop.enqueue(await PastUse(harness.ledger, HOUR_S).follow(harness.now))
    await harness.settle()
    queues = harness.loop.state.queues
    assert queues.usage[queues.slots["a"], 0] == pytest.approx(251_000, rel=0.01)
