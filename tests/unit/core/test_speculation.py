"""What would be is told without changing what is."""

import random
from collections.abc import Callable

import pytest

from carrel_scheduler.core.cycle import cycle
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.errors import InvalidEvent, UnknownWorkload
from carrel_scheduler.core.events import (
    CapacityReserved,
    Event,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    WorkloadQueued,
)
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.preemption import preemptors
from carrel_scheduler.core.reasons import ReasonClass, Token
from carrel_scheduler.core.requests import IN_GROUP, NodeConstraint
from carrel_scheduler.core.resources import MILLI, UNLIMITED, ResourceVector
from carrel_scheduler.core.speculation import (
    Remedy,
    RemedyKind,
    fewer_gpus,
    forecast,
    if_ended,
    impact,
    preview,
    remedies,
    what_if,
)
from carrel_scheduler.core.state import State
from unit.core.digest import digest
from unit.core.situations import (
    apply,
    asking,
    carry_out,
    node,
    queue,
    running,
    state_of,
    training,
    workspace,
)


@pytest.fixture
def state() -> State:
    """Four GPUs: `a` has three of them (quota 2), `b` one (quota 2); `wait` waits."""
    return state_of(
        node("n", 4),
        queue("a", 2),
        queue("b", 2, created_at=1.0),
        training("a2", "a", 2, created_at=1.0),
        training("a1", "a", 1, created_at=2.0),
        training("b1", "b", 1, created_at=3.0),
        TaskPlaced("a2", 0, "n", (0, 1), at=1.0),
        TaskPlaced("a1", 0, "n", (2,), at=2.0),
        TaskPlaced("b1", 0, "n", (3,), at=3.0),
        training("wait", "a", created_at=4.0),
    )


def told(plan: Plan) -> str:
    """All that a plan says."""
    said = (plan.bindings, plan.evictions, plan.nominations, plan.removals)
    return repr((said, sorted(plan.reasons.items()), plan.queue, plan.fair_share))


def test_forecast_of_a_claim(state: State) -> None:
    before = digest(state)
    reason = forecast(state, workspace("desk", "b"), 10.0)
    assert reason.token is Token.WAITS_FOR_ROOM
    assert [holder.uid for holder in reason.holders] == ["a1"]
    assert digest(state) == before


def test_what_if_names_places_and_who_gives_way(state: State) -> None:
    found = what_if(state, workspace("desk", "b"), 10.0)
    assert found.served
    assert [(e.uid, e.reason.token) for e in found.gives_way] == [("a1", Token.RECLAIMED)]
    assert found.held is not None
    assert found.held.places == (("n", (2,), 0),)
    assert found.bindings == ()


def test_forecast_of_a_start(state: State) -> None:
    apply(state, [node("m", 1), TaskPlaced("wait", 0, "m", (0,), at=5.0), node("o", 1)])
    found = what_if(state, training("x", "a"), 10.0)
    assert (found.reason.cls, found.reason.nodes) == (ReasonClass.STARTING, ("o",))
    assert [(b.node, b.devices) for b in found.bindings] == [("o", (0,))]


def test_forecast_of_one_that_waits(state: State) -> None:
    assert forecast(state, "wait", 10.0).token is Token.QUOTA_USED
    assert forecast(state, "wait", 10.0) == decide(state, 10.0).reasons["wait"]
    with pytest.raises(UnknownWorkload):
        forecast(state, "nobody", 10.0)


def test_with_fewer_gpus_it_would_start() -> None:
    used = running(workspace("x", "a", 5), "n", 0, 1, 2, 3, 4)
    state = state_of(node("n", 8), queue("a", 8), *used)
    before = digest(state)
    assert fewer_gpus(state, training("y", "a", 8), 10.0) == 2  # 3 are free, 4 are too many
    assert fewer_gpus(state, training("y", "a", 4), 10.0) == 2
    assert fewer_gpus(state, training("y", "a", 1), 10.0) == 0
    assert fewer_gpus(state, training("y", "a", 2, tasks=4), 10.0) == 0
    full = state_of(node("n", 8), queue("a", 8), *running(workspace("x", "a", 8), "n", *range(8)))
    assert fewer_gpus(full, training("y", "a", 8), 10.0) == 0
    assert digest(state) == before


def test_forecast_of_what_can_never_be(state: State) -> None:
    assert forecast(state, training("x", "a", 9), 10.0).cls is ReasonClass.NEVER


def test_a_waiting_workload_may_be_asked_about_in_another_form(state: State) -> None:
    before, plan = digest(state), told(decide(state, 10.0))
    small = what_if(state, training("wait", "a", 0, created_at=4.0), 10.0)
    assert small.reason.cls is ReasonClass.STARTING
    assert (digest(state), told(decide(state, 10.0))) == (before, plan)


def test_places_held_for_it_are_still_held_afterwards(state: State) -> None:
    apply(state, [node("m", 1), CapacityReserved("wait", (("m", (0,), 0),))])
    before = digest(state)
    assert what_if(state, training("wait", "a", 2), 10.0).reason.cls is ReasonClass.NOT_NOW
    assert digest(state) == before


def test_whose_turn_it_is_does_not_change_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a large cluster one claim is served in a cycle; who asks about another is told its own."""
    monkeypatch.setattr(cycle, "SMALL_CLUSTER", 0)
    monkeypatch.setattr(preemptors, "SEARCH_BUDGET", 1)
    monkeypatch.setattr(preemptors, "PREEMPTOR_BUDGET", 1)
    state = state_of(
        *(node("n", 4), queue("a", 0), queue("b", 2, created_at=1.0), queue("c", 2)),
        *(one for k in range(4) for one in running(training(f"r{k}", "a"), "n", k)),
        *(workspace("first", "c"), workspace("desk", "b")),
    )
    plan = decide(state, 10.0)
    assert [one.uid for one in plan.nominations] == ["first"]
    before = digest(state)
    assert forecast(state, "desk", 10.0).token is Token.WAITS_FOR_ROOM
    found = what_if(state, workspace("another", "b"), 10.0)
    assert found.held is not None
    assert len(found.gives_way) == 1
    assert (digest(state), told(decide(state, 10.0))) == (before, told(plan))


def test_a_refused_question_leaves_no_trace(state: State) -> None:
    before = digest(state)
    for event in (training("x", "nobody"), training("wait", "nobody"), training("a2", "a")):
        with pytest.raises(InvalidEvent):
            what_if(state, event, 10.0)
    with pytest.raises(InvalidEvent):
        impact(state, QueueSet("a", ResourceVector(-7, 0, 0)), 10.0)
    assert digest(state) == before


def test_impact_of_another_quota(state: State) -> None:
    before = digest(state)
    assert impact(state, queue("b", 0, created_at=1.0), 10.0) == (("wait",), ("b1",))
    assert digest(state) == before


def test_impact_leaves_out_what_happens_anyway(state: State) -> None:
    state.apply(workspace("desk", "b"))
    assert [eviction.uid for eviction in decide(state, 10.0).evictions] == ["a1"]
    assert impact(state, queue("b", 2, created_at=1.0, limit=4), 10.0) == ((), ())


def test_impact_of_less_quota_elsewhere() -> None:
    state = state_of(
        node("n", 1),
        queue("a", 1),
        queue("b", 1),
        *running(training("x", "a"), "n", 0),
        workspace("desk", "b"),
    )
    before = told(decide(state, 10.0))
    assert impact(state, queue("a", 0), 10.0) == (("desk",), ("x",))
    assert told(decide(state, 10.0)) == before


def test_impact_of_several_queues_is_that_of_all_of_them_together() -> None:
    """Neither of the changes alone does anything."""
    state = state_of(
        node("n", 1),
        queue("a", 1),
        queue("b", 0),
        *running(training("x", "a"), "n", 0),
        workspace("desk", "b"),
    )
    before = digest(state)
    assert impact(state, queue("a", 0), 10.0) == ((), ())
    assert impact(state, queue("b", 1), 10.0) == ((), ())
    assert impact(state, queue("a", 0), 10.0, queue("b", 1)) == (("desk",), ("x",))
    assert digest(state) == before


def test_impact_of_a_new_queue_above() -> None:
    state = state_of(node("n", 1), queue("a", 1), training("x", "a"))
    before = digest(state)
    assert impact(state, queue("dep", 1), 10.0) == ((), ())
    assert digest(state) == before


def test_what_would_happen_if_somebody_ended(state: State) -> None:
    before = digest(state)
    found = if_ended(state, ["a1"], "wait", 10.0)
    assert found.held is not None
    assert found.held.places == (("n", (2,), 0),)
    assert not if_ended(state, [], "wait", 10.0).served
    assert digest(state) == before


def test_what_would_unblock_is_tried(state: State) -> None:
    before = digest(state)
    found = {(remedy.change, remedy.uid or remedy.queue) for remedy in remedies(state, "wait", 9.0)}
    assert (RemedyKind.ENDS, "a2") in found
    assert digest(state) == before


def limited(gpu: int, cpu: int = UNLIMITED, memory: int = UNLIMITED) -> QueueSet:
    """`a` has a quota of four GPUs and these limits."""
    return QueueSet(
        "a", ResourceVector(4 * MILLI, UNLIMITED, UNLIMITED), ResourceVector(gpu, cpu, memory)
    )


GROUPED = node("n", 4, labels=((IN_GROUP, "a100"),))
IN_A100 = asking(2, where=NodeConstraint(labels=((IN_GROUP, frozenset({"a100"})),)))
X, X_FIXED = running(training("x", "a"), "n", 0), running(workspace("x", "a"), "n", 0)
Z = (queue("b", 1), *running(training("z", "b", 3), "n", 1, 2, 3))
FIXED_BATCH = workspace("y", "a", 2, interactive=False)
KINDS = RemedyKind


@pytest.mark.parametrize(
    ("change", "rule", "now", "needed", "others", "waits", "resource"),
    [
        (KINDS.LIMIT, limited, 1000, 2000, X, training("y", "a"), "gpu"),
        (KINDS.LIMIT, lambda most: limited(UNLIMITED, most), 2000, 3000, X,
         training("y", "a", cpu=2), "cpu"),
        (KINDS.LIMIT, lambda most: limited(9000, 9000, most), 2048, 3072, X,
         training("y", "a", memory_gib=2), "memory"),
        (KINDS.QUOTA, lambda least: queue("a", least / 1000), 2000, 3000, X_FIXED,
         workspace("y", "a", 2), "gpu"),
        (KINDS.QUOTA, lambda least: queue("a", least / 1000), 2000, 3000, X_FIXED,
         FIXED_BATCH, "gpu"),
        (KINDS.GROUP_LIMIT, lambda most: queue("a", group_limits=(("a100", most), ("b100", 7))),
         2000, 3000, X, training("y", "a", request=IN_A100), "gpu"),
        (KINDS.GROUP_QUOTA, lambda least: queue("a", 4, group_quotas=(("a100", least),)),
         1000, 3000, (*X_FIXED, queue("b", 4, group_quotas=(("a100", 3000),))),
         workspace("y", "a", request=IN_A100), "gpu"),
    ],
)  # fmt: skip
def test_a_rule_that_would_unblock_is_the_least_that_does(
    change: RemedyKind,
    rule: Callable[[int], QueueSet],
    now: int,
    needed: int,
    others: tuple[Event, ...],
    waits: WorkloadQueued,
    resource: str,
) -> None:
    """`y` would start, or others would stop for it, with the rule that is named, not with less."""
    state = state_of(GROUPED, rule(now), *others, waits)
    found = {one.change: one for one in remedies(state, "y", 10.0)}
    free = waits.preemptible is Preemptibility.NO and not waits.interactive
    assert (KINDS.PREEMPTIBLE in found) == free
    group = "a100" if change in (KINDS.GROUP_LIMIT, KINDS.GROUP_QUOTA) else ""
    assert found[change] == Remedy(change, "a", resource, needed, group=group)
    for least, served in ((needed - 1, False), (needed, True)):
        state.apply(rule(least))
        assert preview(decide(state, 10.0), "y").served == served


@pytest.mark.parametrize(
    ("rule", "others", "asked", "remedy"),
    [
        (queue("a", 1, over_quota=False), X, 1, Remedy(KINDS.BORROW, "a")),
        (queue("a", 1), (*X, *Z), 2, Remedy(KINDS.QUOTA, "a", "gpu", 3000)),
    ],
)
def test_borrowing_and_quota_would_unblock(
    rule: QueueSet, others: tuple[Event, ...], asked: int, remedy: Remedy
) -> None:
    state = state_of(GROUPED, rule, *others, training("y", "a", asked))
    assert remedies(state, "y", 10.0)[0] == remedy


def test_a_higher_limit_of_one_resource_is_no_remedy_where_another_binds_too() -> None:
    state = state_of(GROUPED, limited(1000, 1000), *X, training("y", "a"))
    assert [one.change for one in remedies(state, "y", 10.0)] == [KINDS.ENDS]


def test_what_starts_needs_no_help() -> None:
    state = state_of(node("n", 4), queue("a", 1), training("x", "a"))
    assert remedies(state, "x", 10.0) == ()


def _random_state(dice: random.Random) -> State:
    state = state_of(
        *(node(f"n{n}", 4, cpu=16, memory_gib=64) for n in range(4)),
        queue("dep", 8),
        queue("a", 4, parent="dep"),
        queue("b", 4, parent="dep", limit=10),
        queue("c", 8),
    )
    for number in range(20):
        state.apply(_random_work(dice, f"w{number}", float(number)))
    for step in range(2):
        carry_out(state, decide(state, 50.0 + step), 50.0 + step)
    for number in range(8):
        state.apply(_random_work(dice, f"late{number}", 60.0 + number))
    return state


def _random_work(dice: random.Random, uid: str, at: float) -> WorkloadQueued:
    owner = dice.choice("abc")
    make = workspace if dice.random() < 0.3 else training
    if dice.random() < 0.3:
        tasks = dice.choice((2, 3, 5))
        gang = Group(requests=(asking(1),) * tasks, min_tasks=dice.choice((1, 2)))
        return make(uid, owner, gang=gang, created_at=at)
    size = dice.choice((0, 0.5, 0.25, 1, 2, 4, 8))
    return make(uid, owner, size, cpu=dice.choice((1, 2, 8)), created_at=at)


@pytest.mark.parametrize("seed", range(10))
def test_no_question_leaves_a_trace(seed: int) -> None:
    dice = random.Random(seed)
    state = _random_state(dice)
    before, plan = digest(state), told(decide(state, 100.0))
    for number in range(6):
        what_if(state, _random_work(dice, f"ask{number}", 99.0), 100.0)
    waits = list(decide(state, 100.0).queue)
    again = state.workload(dice.choice(waits)).queued if waits else None
    if again is not None:
        what_if(state, _random_work(dice, again.uid, 1.0), 100.0)
    impact(state, queue("c", dice.choice((0, 4)), limit=dice.choice((4, UNLIMITED))), 100.0)
    if_ended(state, list(state.holding)[:2], next(iter(waits)), 100.0)
    assert digest(state) == before
    assert told(decide(state, 100.0)) == plan


@pytest.mark.parametrize("seed", range(5))
def test_later_decisions_are_those_of_a_state_that_was_never_asked(seed: int) -> None:
    asked, quiet = (_random_state(random.Random(seed)) for _ in range(2))
    dice = random.Random(seed + 100)
    what_if(asked, _random_work(dice, "ask", 99.0), 100.0)
    for state in (asked, quiet):
        apply(state, [_random_work(random.Random(seed), "new", 99.0)])
        carry_out(state, decide(state, 101.0), 101.0)
    assert digest(asked) == digest(quiet)
    assert told(decide(asked, 102.0)) == told(decide(quiet, 102.0))
