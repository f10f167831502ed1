"""Who may claim, whose work is legal to take, and how much of it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carrel_scheduler.core.events import QueueSet
from carrel_scheduler.core.preemption.legality import (
    CapacityNeed,
    ReclaimRequest,
    legal_losses,
    may_lose,
    preempt_protects_s,
    reclaim_protects_s,
)
from carrel_scheduler.core.queues.fair_share import Division
from carrel_scheduler.core.queues.queues import QueueColumns, Sum
from carrel_scheduler.core.queues.rules import NO_BOUND, smaller
from carrel_scheduler.core.queues.usage import QueueUsage
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector, Triple
from unit.core.queue_trees import columns, gpus, hold, queue, queue_usage, want


class Case:
    """A tree with what its queues hold and wait for, and claims in it."""

    def __init__(
        self, *queues: QueueSet, total: float, used: dict[str, float], waiting: dict[str, float]
    ) -> None:
        self.built = columns(*queues)
        self.stand = queue_usage(self.built, total, used, waiting)

    def slot(self, name: str) -> int:
        return self.built.slot(name)

    def claim(
        self, name: str, amount: float, *, fixed: bool = False, **more: Any
    ) -> ReclaimRequest:
        demand = gpus(amount)
        return ReclaimRequest(
            self.stand, self.slot(name), demand, demand if fixed else (0, 0, 0), **more
        )

    def left(self, claim: ReclaimRequest, name: str) -> dict[str, float]:
        """GPUs that may be taken at each level of a leaf's path."""
        names = self.built.table.names
        return {
            names[slot]: (left[0] - lost[0]) / 1000
            for slot, left, lost in claim.excess(self.slot(name))
        }

    def taken(self, claim: ReclaimRequest, name: str) -> int:
        """How many one-GPU victims of a leaf are legal one after the other."""
        count = 0
        while claim.legal(self.slot(name), gpus(1)):
            claim.take(self.slot(name), gpus(1))
            count += 1
        for _ in range(count):
            claim.take(self.slot(name), (-1000, 0, 0))
        return count


def two(a: float, b: float, *, claim: float, total: float = 8) -> Case:
    """`a` claims from `b`; quotas of 4 each."""
    return Case(
        queue("a", 4),
        queue("b", 4),
        total=total,
        used={"a": a, "b": b},
        waiting={"a": claim, "b": 9},
    )


# May it claim at all


def test_a_claim_stays_within_the_fair_share() -> None:
    case = two(2, 6, claim=9)
    assert case.claim("a", 2).may
    refusal = case.claim("a", 3).refusal
    assert refusal is not None
    assert (refusal.token, refusal.held, refusal.bound) == (Token.QUOTA_USED, 2000, 4000)


def test_the_fair_share_of_every_resource_counts_even_if_it_is_not_asked_for() -> None:
    built = columns(QueueSet("a", ResourceVector(4000, 1000, UNLIMITED), weight=(0, 0, 0)))
    built.add(Sum.USED, 0, (0, 2000, 0))
    want(built, "a", 4)
    refusal = ReclaimRequest(QueueUsage(built, Division(), gpus(8, 64_000, 9)), 0, gpus(1)).refusal
    assert refusal is not None
    assert (refusal.token, refusal.resource) == (Token.QUOTA_USED, 1)


def test_a_non_preemptible_claim_stays_within_quota_at_every_level() -> None:
    case = Case(
        queue("d", 2),
        queue("other", 6),
        queue("a", 3, "d"),
        total=8,
        used={"other": 8},
        waiting={"a": 9},
    )
    assert case.claim("a", 2, fixed=True).may
    refusal = case.claim("a", 3, fixed=True).refusal
    assert refusal is not None
    assert (refusal.token, refusal.queue) == (Token.NON_PREEMPTIBLE_BEYOND_QUOTA, "d")


def test_the_limit_of_its_own_queue_refuses_a_claim() -> None:
    case = Case(queue("a", 4, limit=3), queue("b", 4), total=8, used={"a": 2, "b": 6}, waiting={})
    refusal = case.claim("a", 2).refusal
    assert refusal is not None
    assert refusal.token is Token.OVER_LIMIT


def test_a_full_department_is_a_need_not_a_refusal() -> None:
    """The department is at its limit, but `b` inside it holds what is `a`'s."""
    case = Case(
        queue("d", 4, limit=4),
        queue("a", 2, "d"),
        queue("b", 2, "d"),
        total=9,
        used={"a": 1, "b": 3},
        waiting={"a": 5},
    )
    claim = case.claim("a", 1)
    assert claim.may
    assert claim.needs() == (CapacityNeed(case.slot("d"), 0, 1000),)
    claim.take(case.slot("b"), gpus(1))
    assert claim.needs() == ()
    assert case.claim("a", 5).refusal is not None, "never within the department's limit"


# Against a queue beside it


def test_within_quota_a_claim_cuts_others_down_to_their_quota() -> None:
    case = two(2, 6, claim=2)
    claim = case.claim("a", 2)
    assert case.left(claim, "b") == {"b": 2}
    assert case.taken(claim, "b") == 2


def test_beyond_quota_a_claim_cuts_others_down_to_their_fair_share() -> None:
    case = Case(
        queue("a", 1, weight=1),
        queue("b", 1, weight=1),
        total=8,
        used={"a": 1, "b": 7},
        waiting={"a": 9, "b": 9},
    )
    claim = case.claim("a", 3)
    assert case.taken(claim, "b") == 3
    assert case.left(case.claim("a", 0.1), "b") == {"b": 3}


def test_a_queue_within_its_quota_is_never_cut() -> None:
    case = two(4, 4, claim=2, total=12)
    assert case.left(case.claim("a", 2), "b") == {"b": 0}
    assert not case.claim("a", 2).legal(case.slot("b"), gpus(1))


def test_the_last_victim_may_overshoot() -> None:
    case = two(2, 6, claim=2)
    claim = case.claim("a", 2)
    claim.take(case.slot("b"), gpus(1))
    assert claim.legal(case.slot("b"), gpus(4))
    claim.take(case.slot("b"), gpus(4))
    assert not claim.legal(case.slot("b"), gpus(1))


def test_a_queue_of_higher_rank_is_not_cut_by_a_claim_beyond_quota() -> None:
    rules: dict[str, Any] = {"total": 8, "used": {"a": 1, "b": 7}, "waiting": {"a": 9}}
    for rank, taken in ((0, 6), (1, 0)):
        case = Case(queue("a", 1, weight=9), queue("b", 1, weight=0, rank=rank), **rules)
        assert case.taken(case.claim("a", 1), "b") == taken
    case = Case(queue("a", 2, weight=9), queue("b", 1, rank=1), **rules)
    assert case.taken(case.claim("a", 1), "b") == 6, "within its quota it may"


def test_an_open_quota_is_never_exceeded() -> None:
    case = Case(queue("a", 4), queue("b", -1), total=8, used={"b": 8}, waiting={"a": 4})
    assert case.taken(case.claim("a", 1), "b") == 0


def test_its_own_queue_is_no_victim_of_a_claim() -> None:
    case = two(2, 6, claim=2)
    claim = case.claim("a", 1)
    assert not claim.legal(case.slot("a"), gpus(1))


def test_only_what_is_asked_for_and_held_makes_a_victim() -> None:
    built = columns(
        QueueSet("a", ResourceVector(4000, 4000, UNLIMITED)),
        QueueSet("b", ResourceVector(8000, 1000, UNLIMITED)),
    )
    built.add(Sum.USED, 1, (4000, 6000, 0))
    built.add(Sum.WAITING, 0, (4000, 4000, 0))
    stand = QueueUsage(built, Division(), (8000, 8000, 8))
    assert not ReclaimRequest(stand, 0, (1000, 0, 0)).legal(1, (1000, 1000, 0))
    claim = ReclaimRequest(stand, 0, (1000, 1000, 0))
    assert claim.excess(1) == [(1, (0, 5000, 0), (0, 0, 0))]
    assert claim.legal(1, (1000, 1000, 0))
    assert not claim.legal(1, (1000, 0, 0))


# In a tree


def departments(**used: float) -> Case:
    """Departments of 4 and 4; in the second projects of 3 and 3."""
    return Case(
        queue("d1", 4),
        queue("d2", 4),
        queue("a", 4, "d1"),
        queue("x", 3, "d2"),
        queue("y", 3, "d2"),
        total=8,
        used=used,
        waiting={"a": 4},
    )


def test_a_department_beyond_its_quota_gives_what_its_projects_hold_beyond_theirs() -> None:
    case = departments(x=5, y=2)
    claim = case.claim("a", 2)
    assert case.left(claim, "x") == {"d2": 3, "x": 3}
    assert case.left(claim, "y") == {"d2": 3, "y": 1}


def test_projects_within_quota_are_spared_while_another_is_beyond() -> None:
    case = departments(x=6, y=1)
    claim = case.claim("a", 2)
    assert case.left(claim, "y") == {"d2": 3, "y": 0}
    assert case.left(claim, "x") == {"d2": 3, "x": 3}
    assert not claim.legal(case.slot("y"), gpus(1))


def test_a_department_beyond_its_quota_gives_way_though_its_projects_are_within_theirs() -> None:
    case = departments(x=3, y=3)
    claim = case.claim("a", 2)
    assert case.left(claim, "x") == {"d2": 2, "x": 2}
    claim.take(case.slot("x"), gpus(1))
    assert case.left(claim, "y") == {"d2": 1, "y": 2}
    claim.take(case.slot("y"), gpus(1))
    assert not claim.legal(case.slot("x"), gpus(1))


def test_inside_a_department_its_projects_claim_from_each_other_alone() -> None:
    case = Case(
        queue("d1", 4),
        queue("d2", 4),
        queue("a", 2, "d1"),
        queue("b", 2, "d1"),
        queue("x", 4, "d2"),
        total=8,
        used={"b": 4, "x": 4},
        waiting={"a": 2},
    )
    claim = case.claim("a", 2)
    assert case.taken(claim, "b") == 2
    assert case.taken(claim, "x") == 0


def test_a_department_beyond_its_fair_share_takes_only_from_fuller_ones() -> None:
    """`d1` has 5 of a fair share of 4; claims of `a` leave `d2` fuller than `d1`, or fail."""

    def case(y: float) -> Case:
        return Case(
            queue("d1", 4),
            queue("d2", 4),
            queue("a", 3, "d1"),
            queue("b", 3, "d1"),
            queue("y", 4, "d2"),
            total=8,
            used={"a": 1, "b": 3, "y": y},
            waiting={"a": 2, "y": 9},
        )

    assert case(5).taken(case(5).claim("a", 1), "y") == 0
    fuller = case(7)
    claim = fuller.claim("a", 1)
    assert claim.may
    assert claim.excess(fuller.slot("y"))[0][1][0] == 3000
    assert fuller.taken(claim, "y") == 1, "6 of 4 stays above 5 of 4; 5 of 4 would not"
    stricter = fuller.claim("a", 1, saturation_milli=1300)
    assert fuller.taken(stricter, "y") == 0
    assert claim.budgets().most[fuller.slot("d2")].tolist() == [1999, NO_BOUND, NO_BOUND]


def test_within_its_fair_share_saturation_does_not_matter() -> None:
    case = two(2, 6, claim=2)
    assert case.claim("a", 2).budgets().most.min() == NO_BOUND


# Over whole arrays


def test_a_bound_on_a_sum_can_be_reached_but_not_passed_by_victims_of_one_size() -> None:
    budgets = two(2, 6, claim=2).claim("a", 2).budgets()
    slot = int(np.flatnonzero(budgets.excess[:, 0] == 2000)[0])
    budgets.excess[slot], budgets.most[slot] = 9000, 3000
    left = budgets.by_excess((1000, 1000, 1000)).excess[slot].tolist()
    taken = [may_lose(left, (lost, 0, 0), (1000, 0, 0)) for lost in (0, 1000, 2000, 3000)]
    assert taken == [True, True, True, False]


def test_budgets_name_every_queue() -> None:
    case = departments(x=6, y=1)
    budgets = case.claim("a", 2).budgets()
    excess = {name: budgets.excess[slot, 0] / 1000 for name, slot in case.built.slots.items()}
    assert excess == {"d1": NO_BOUND / 1000, "a": 0, "d2": 3, "x": 3, "y": 0}
    assert not budgets.excess[case.slot("d2"), 1:].any()
    assert budgets.excess.dtype == np.int64


drawn_leaves = st.lists(
    st.tuples(
        st.sampled_from([-1.0, 0.0, 0.5, 1.0, 2.0, 4.0]),
        st.integers(0, 5),
        st.integers(0, 3),
        st.integers(0, 1),
    ),
    min_size=2,
    max_size=9,
)


def drawn_case(drawn: list[tuple[float, int, int, int]]) -> tuple[QueueColumns, QueueUsage]:
    built = columns(queue("d0", 2), queue("d1", 3, rank=1), queue("t", 1, "d1"))
    for n, (quota, used, waiting, rank) in enumerate(drawn):
        name = f"p{n}"
        built.set(queue(name, quota, ("d0", "d1", "t", "")[n % 4], rank=rank))
        hold(built, name, used)
        want(built, name, waiting)
    return built, QueueUsage(built, Division(), gpus(12, 64, 64))


def legal_by_budgets(claim: ReclaimRequest, path: tuple[int, ...], amounts: Triple) -> bool:
    budgets = claim.budgets()
    asked = [r for r in range(3) if amounts[r]]
    return all(
        any(budgets.excess[slot, r] > 0 for r in asked)
        and all(amounts[r] <= budgets.most[slot, r] for r in range(3))
        for slot in path
    )


@settings(max_examples=80)
@given(drawn=drawn_leaves, asked=st.integers(1, 3))
def test_budgets_and_single_questions_agree(
    drawn: list[tuple[float, int, int, int]], asked: int
) -> None:
    built, stand = drawn_case(drawn)
    leaves = [built.slot(f"p{n}") for n in range(len(drawn))]
    claim = ReclaimRequest(stand, leaves[0], gpus(asked))
    for victim in leaves[1:]:
        for amount in (1, 3):
            answer = legal_by_budgets(claim, built.path(victim), gpus(amount))
            assert claim.legal(victim, gpus(amount)) == answer


@settings(max_examples=80)
@given(drawn=drawn_leaves, order=st.randoms(use_true_random=False))
def test_what_may_be_taken_one_by_one_may_be_taken_as_a_set(
    drawn: list[tuple[float, int, int, int]], order: Any
) -> None:
    built, stand = drawn_case(drawn)
    leaves = [built.slot(f"p{n}") for n in range(len(drawn))]
    claim = ReclaimRequest(stand, leaves[0], gpus(1))
    budgets, tree = claim.budgets(), built.table.tree
    sums, largest = np.zeros((tree.size, 3), np.int64), np.zeros((tree.size, 3), np.int64)
    for _ in range(12):
        victim, held = order.choice(leaves), np.array(gpus(order.choice((1, 2))))
        path = list(built.path(victim))
        more = sums.copy()
        more[path] += held
        allowed = ((sums[path] < budgets.excess[path]) & (held > 0)).any(axis=1)
        allowed &= (more[path] <= budgets.most[path]).all(axis=1)
        assert claim.legal(victim, held.tolist()) == allowed.all()
        if allowed.all():
            claim.take(victim, held.tolist())
            sums = more
            largest[path] = np.maximum(largest[path], held)
            assert legal_losses(budgets.excess, sums, largest).all()


@settings(max_examples=80)
@given(drawn=drawn_leaves, order=st.randoms(use_true_random=False))
def test_who_is_within_quota_at_every_level_is_never_taken_below_it_by_more_than_one_victim(
    drawn: list[tuple[float, int, int, int]], order: Any
) -> None:
    built, stand = drawn_case(drawn)
    leaves = [built.slot(f"p{n}") for n in range(len(drawn))]
    claim = ReclaimRequest(stand, leaves[0], gpus(1))
    before = stand.copy()
    for _ in range(40):
        victim = order.choice(leaves)
        if stand.used[victim][0] and claim.legal(victim, gpus(1)):
            path = [slot for slot in built.path(victim) if slot not in built.path(leaves[0])]
            assert any(stand.used[slot][0] > stand.quota[slot][0] for slot in path)
            claim.take(victim, gpus(1))
    for slot, row in enumerate(stand.used):
        kept = min(stand.quota[slot][0], stand.allocatable[slot][0], before.used[slot][0])
        if built.table.parent[slot] < 0 and slot not in built.path(leaves[0]):
            assert row[0] > kept - 1000


three = st.tuples(*(st.integers(0, 5),) * 3)


@settings(max_examples=150)
@given(drawn=st.lists(st.tuples(three, three, three, three), min_size=3, max_size=7), asked=three)
def test_cpu_and_memory_are_claimed_by_the_same_rules(
    drawn: list[tuple[Triple, Triple, Triple, Triple]], asked: Triple
) -> None:
    """Of each project quota, use, demand, and what this cycle gave it are drawn."""

    def budgets(order: list[int]) -> list[Any]:
        def milli(amounts: Triple) -> Triple:
            return amounts[0] * 1000, amounts[order[1]] * 1000, amounts[order[2]] * 1000

        parts = [QueueSet(name, ResourceVector(*milli((3, 5, 4))), parent=top)
                 for name, top in (("d0", ""), ("d1", ""), ("t", "d1"))]  # fmt: skip
        parts += [QueueSet(f"p{n}", ResourceVector(*milli(quota)),
                           parent=("d0", "d1", "t", "")[n % 4])
                  for n, (quota, *_) in enumerate(drawn)]  # fmt: skip
        built, given_now = columns(*parts), {}
        for n, (_, used, waiting, now) in enumerate(drawn):
            slot = built.slot(f"p{n}")
            built.add(Sum.USED, slot, milli(used))
            built.add(Sum.WAITING, slot, milli(waiting))
            given_now[slot] = milli(smaller(used, now))
        usage = QueueUsage(built, Division(), milli((12, 12, 12)))
        claim = ReclaimRequest(usage, built.slot("p0"), milli(asked), given=given_now)
        found = claim.budgets()
        legal = [claim.legal(built.slot(f"p{n}"), milli(used), new=new)
                 for n, (_, used, _, _) in enumerate(drawn) for new in (False, True)]  # fmt: skip
        return [found.excess[:, order].tolist(), found.most[:, order].tolist(), legal]

    assert budgets([0, 1, 2]) == budgets([0, 2, 1])


# Minimum run times

PROTECTED = (
    queue("d1", 1, reclaim_min_runtime_s=60.0),
    queue("d2", 1, reclaim_min_runtime_s=120.0, preempt_min_runtime_s=7.0),
    queue("a", 1, "d1", reclaim_min_runtime_s=1.0),
    queue("x", 1, "d2", reclaim_min_runtime_s=5.0),
    queue("y", 1, "d2"),
    queue("z", 1, "d2", preempt_min_runtime_s=0.0),
    queue("free", 1),
)


@pytest.mark.parametrize(
    ("preemptor", "victim", "seconds"),
    [
        ("a", "x", 120.0),  # between departments the department decides
        ("y", "x", 5.0),  # inside it the project
        ("x", "y", 120.0),  # which says nothing: then the department
        ("free", "a", 60.0),
        ("a", "free", 33.0),  # nobody says anything
    ],
)
def test_against_other_queues_the_queue_below_the_common_one_decides(
    preemptor: str, victim: str, seconds: float
) -> None:
    built = columns(*PROTECTED)
    found = reclaim_protects_s(built.table, built.slot(preemptor), built.slot(victim), 33.0)
    assert found == seconds


@pytest.mark.parametrize(("name", "seconds"), [("x", 7.0), ("z", 0.0), ("a", 33.0)])
def test_against_its_own_queue_the_nearest_rule_decides(name: str, seconds: float) -> None:
    built = columns(*PROTECTED)
    assert preempt_protects_s(built.table, built.slot(name), 33.0) == seconds
