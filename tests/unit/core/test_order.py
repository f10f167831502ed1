"""The order of service between queues, one rule at a time, and its reverse."""

from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carrel_scheduler.core.events import QueueSet
from carrel_scheduler.core.queues.fair_share import Division
from carrel_scheduler.core.queues.order import ServiceOrder, VictimOrder, queue_key
from carrel_scheduler.core.queues.queues import QueueColumns, Sum
from carrel_scheduler.core.queues.usage import QueueUsage
from carrel_scheduler.core.resources import ResourceVector, Triple
from unit.core.queue_trees import columns, gpus, queue, queue_usage


def first(stand: QueueUsage, **heads: float) -> str:
    """Which queue is served first, with these candidates."""
    slots = {name: slot for slot, name in enumerate(stand.table.names)}
    wants = {slots[name]: gpus(amount) for name, amount in heads.items()}
    leaf = ServiceOrder(stand, wants.get, wants).pop()
    assert leaf is not None
    return stand.table.names[leaf]


def test_1_a_queue_beyond_its_fair_share_in_everything_comes_last() -> None:
    rules = [
        QueueSet(name, ResourceVector(1000, 1000, 1000), weight=(0, 0, 0), rank=rank)
        for name, rank in (("a", 9), ("b", 0))
    ]
    for amounts, expected in (((2000, 2000, 2000), "b"), ((2000, 2000, 1000), "a")):
        built = columns(*rules)
        built.add(Sum.USED, built.slot("a"), amounts)
        built.add(Sum.USED, built.slot("b"), (2000, 1000, 1000))
        assert first(queue_usage(built, 8), a=1, b=1) == expected


def test_2_a_queue_within_its_quota_with_the_candidate_comes_first() -> None:
    built = columns(queue("a", 2, rank=5), queue("b", 2))
    stand = queue_usage(built, 8, used={"a": 2, "b": 1})
    assert first(stand, a=1, b=1) == "b"
    assert first(stand, a=1, b=2) == "a"


def test_3_the_higher_rank_comes_first() -> None:
    built = columns(queue("a", 4), queue("b", 4, rank=1))
    assert first(queue_usage(built, 8, used={"b": 2}), a=1, b=1) == "b"


def test_4_a_queue_without_any_share_of_something_it_would_hold_comes_last() -> None:
    built = columns(queue("a", 0, weight=0), queue("b", 0, weight=1, created_at=1.0))
    stand = queue_usage(built, 8, used={"b": 7}, waiting={"a": 1, "b": 9})
    assert first(stand, a=1, b=1) == "b"
    assert first(stand, a=0, b=1) == "a"


def test_5_the_smaller_dominant_share_with_the_candidate_comes_first() -> None:
    built = columns(queue("a", 1), queue("b", 3, created_at=1.0))
    stand = queue_usage(built, 8, used={"a": 1, "b": 2}, waiting={"a": 1, "b": 1})
    assert first(stand, a=1, b=1) == "b"
    built = columns(queue("a", 4), queue("b", 4, created_at=1.0))
    stand = queue_usage(built, 8)
    assert first(stand, a=2, b=1) == "b"


def test_6_then_the_smaller_share_without_it() -> None:
    built = columns(queue("a", 4), queue("b", 4, created_at=1.0))
    assert first(queue_usage(built, 8, used={"a": 2, "b": 1}), a=1, b=2) == "b"


def test_7_then_the_smaller_allocatable_amounts() -> None:
    built = columns(queue("a", 4), queue("b", 2, created_at=1.0))
    assert first(queue_usage(built, 8, used={"a": 2, "b": 1}), a=2, b=1) == "b"


def test_8_then_the_older_queue_then_the_name() -> None:
    assert (
        first(queue_usage(columns(queue("a", 1, created_at=5.0), queue("b", 1)), 4), a=1, b=1)
        == "b"
    )
    assert first(queue_usage(columns(queue("b", 1), queue("a", 1)), 4), a=1, b=1) == "a"


def test_a_department_is_chosen_before_a_project_of_it() -> None:
    """`p` is the emptiest project, but its department has more than the other."""
    built = columns(
        queue("d1", 4),
        queue("d2", 4),
        queue("p", 2, "d1"),
        queue("q", 2, "d1"),
        queue("r", 4, "d2"),
    )
    stand = queue_usage(built, 8, used={"q": 3, "r": 2})
    assert first(stand, p=1, q=1, r=1) == "r"
    stand.add(built.slot("r"), gpus(1))
    assert first(stand, p=1, q=1, r=1) == "p"


class Backlog:
    """So many one-GPU jobs of each queue, served from a pool of GPUs."""

    def __init__(self, built: QueueColumns, waiting: dict[str, int], total: float) -> None:
        self.left = {built.slot(name): count for name, count in waiting.items()}
        self.stand = queue_usage(built, total, waiting={n: float(c) for n, c in waiting.items()})
        self.service = ServiceOrder(self.stand, self.head, self.left)
        self.names = built.table.names

    def head(self, leaf: int) -> Triple | None:
        return gpus(1) if self.left[leaf] else None

    def serve(self) -> str:
        leaf = self.service.pop()
        assert leaf is not None
        self.left[leaf] -= 1
        self.stand.add(leaf, gpus(1))
        self.service.update(leaf)
        return self.names[leaf]


def test_equal_queues_alternate_whatever_they_submitted_when() -> None:
    backlog = Backlog(columns(queue("a", 1), queue("b", 1)), {"a": 5, "b": 4}, 4)
    assert "".join(backlog.serve() for _ in range(9)) == "ababababa"


def test_saturated_queues_of_three_to_one_get_six_and_two_then_seven() -> None:
    rules = queue("a", 3), queue("b", 1)
    backlog = Backlog(columns(*rules), {"a": 9, "b": 9}, 8)
    served = [backlog.serve() for _ in range(8)]
    assert (served.count("a"), served.count("b")) == (6, 2)
    backlog = Backlog(columns(*rules), {"a": 9, "b": 1}, 8)
    served = [backlog.serve() for _ in range(8)]
    assert (served.count("a"), served.count("b")) == (7, 1)


def test_a_leaf_that_is_not_updated_does_not_return() -> None:
    built = columns(queue("a", 1), queue("b", 1))
    stand = queue_usage(built, 8)
    service = ServiceOrder(stand, lambda leaf: gpus(1), [0, 1])
    assert [service.pop(), service.pop(), service.pop()] == [0, 1, None]
    service.update(1)
    assert [service.pop(), service.pop()] == [1, None]
    service.update_all()
    assert [service.pop(), service.pop()] == [0, 1]


def test_only_leaves_with_candidates_are_asked() -> None:
    built = columns(*(queue(f"q{n}", 1) for n in range(9)))
    asked: list[int] = []

    def head(leaf: int) -> Triple:
        asked.append(leaf)
        return gpus(1)

    service = ServiceOrder(queue_usage(built, 8), head, [2, 5])
    service.pop()
    service.update(2)
    assert asked == [2, 5, 2]


def test_a_changed_standing_of_an_idle_leaf_moves_the_queues_above_it() -> None:
    """Counting work of `q`, which has no candidate, out of `d1` brings `p` before `r`."""
    built = columns(
        queue("d1", 4),
        queue("d2", 4),
        queue("p", 2, "d1"),
        queue("q", 2, "d1"),
        queue("r", 4, "d2"),
    )
    stand = queue_usage(built, 8, used={"q": 3, "r": 2})
    p, q, r = (built.slot(name) for name in "pqr")
    wants = {p: gpus(1), r: gpus(1)}
    service = ServiceOrder(stand, wants.get, wants)
    stand.add(q, gpus(2), sign=-1)
    service.update(q)
    assert service.pop() == p


def sequence(order: ServiceOrder, stand: QueueUsage, amounts: Triple, sign: int) -> Iterable[int]:
    while (leaf := order.pop()) is not None:
        yield leaf
        stand.add(leaf, amounts, sign=sign)
        order.update(leaf)


def test_victims_come_from_the_queue_that_is_furthest_beyond() -> None:
    built = columns(
        queue("a", 1, weight=0), queue("b", 1, weight=0), queue("c", 1, weight=0, rank=1)
    )
    stand = queue_usage(built, 9, used={"a": 2, "b": 4, "c": 3})
    order = VictimOrder(
        stand, lambda leaf: gpus(1) if stand.used[leaf][0] > 1000 else None, range(3)
    )
    names = [built.table.names[leaf] for leaf in sequence(order, stand, gpus(1), -1)]
    assert names == ["b", "b", "b", "a", "c", "c"]


def test_queues_give_by_what_the_next_victim_would_leave_them() -> None:
    """Held alike, `b`'s next victim is larger: after it `a` would still be the fuller one."""
    built = columns(queue("a", 4), queue("b", 4, created_at=-1.0))
    stand = queue_usage(built, 8, used={"a": 2, "b": 2})
    heads = {0: gpus(1), 1: gpus(2)}
    assert VictimOrder(stand, heads.get, heads).pop() == 0


drawn_rules = st.lists(
    st.tuples(
        st.sampled_from([-1.0, 0.0, 1.0, 2.0]),
        st.integers(0, 1),
        st.integers(0, 3),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    min_size=2,
    max_size=8,
)


def random_tree(drawn: list[tuple[float, int, int, int, int]]) -> QueueColumns:
    built = columns(queue("d0", 2), queue("d1", 3, rank=1), queue("t", 2, "d1"))
    for n, (quota, rank, used, waiting, _) in enumerate(drawn):
        built.set(queue(f"p{n}", quota, ("d0", "d1", "t", "")[(n * 7 + 1) % 4], rank=rank))
        built.add(Sum.USED, built.slot(f"p{n}"), gpus(used, used))
        built.add(Sum.WAITING, built.slot(f"p{n}"), gpus(waiting))
    return built


def best_of(stand: QueueUsage, wants: dict[int, Triple], slots: Iterable[int]) -> int | None:
    """The next leaf, by looking at everything anew."""
    found = []
    for slot in slots:
        below = stand.table.children[slot]
        leaf = best_of(stand, wants, below) if below else (slot if slot in wants else None)
        if leaf is not None:
            found.append((queue_key(stand, slot, wants[leaf]), leaf))
    return min(found)[1] if found else None


@settings(max_examples=60)
@given(drawn=drawn_rules, chance=st.randoms(use_true_random=False))
def test_the_tree_of_heaps_gives_what_looking_at_everything_gives(
    drawn: list[tuple[float, int, int, int, int]], chance: Random
) -> None:
    built = random_tree(drawn)
    stand = QueueUsage(built, Division(), gpus(8, 64, 64))
    leaves = [built.slot(f"p{n}") for n in range(len(drawn))]
    wants = {leaf: gpus(1 + drawn[n][4]) for n, leaf in enumerate(leaves) if drawn[n][3]}
    service = ServiceOrder(stand, wants.get, leaves)
    for _ in range(12):
        leaf = service.pop()
        assert leaf == best_of(stand, wants, stand.table.tops)
        if leaf is None:
            break
        stand.add(leaf, wants[leaf])
        if chance.random() < 0.4:
            del wants[leaf]
        service.update(leaf)
        other = chance.choice(leaves)
        if chance.random() < 0.5:
            wants[other] = gpus(chance.randint(0, 2))
        stand.add(other, gpus(chance.randint(0, 1)), sign=chance.choice((1, -1)))
        service.update(other)


@pytest.mark.parametrize("seed", range(3))
def test_queues_served_first_give_last(seed: int) -> None:
    """Whoever would be served first, had its candidate ended, is the last to lose it."""
    chance = Random(seed)
    built = columns(*(queue(f"p{n}", 3, rank=chance.randint(0, 1)) for n in range(6)))
    held = dict(zip((f"p{n}" for n in range(6)), chance.sample(range(1, 12), 6), strict=True))
    stand = queue_usage(built, 40, used=held)
    gone = VictimOrder(stand, lambda leaf: gpus(1), range(6))
    backwards = [gone.pop() for _ in range(6)]
    for leaf in range(6):
        stand.add(leaf, gpus(1), sign=-1)
    served = ServiceOrder(stand, lambda leaf: gpus(1), range(6))
    assert [served.pop() for _ in range(6)] == backwards[::-1]
