"""How queues stand within a cycle."""

import pytest

from carrel_scheduler.core.events import QueueSet
from carrel_scheduler.core.queues.fair_share import Division
from carrel_scheduler.core.queues.queues import Sum
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.queues.usage import SCALE, QueueUsage, dominant_share
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from unit.core.queue_trees import columns, gpus, queue, queue_usage

TREE = (queue("d", 4), queue("p", 2, "d"), queue("u", 1, "p"), queue("other", 1))


def test_what_is_promised_counts_as_had() -> None:
    built = columns(*TREE)
    leaf = built.slot("u")
    for which in (Sum.USED, Sum.RESERVED, Sum.RESERVED_FIXED, Sum.RELEASING, Sum.WAITING):
        built.add(which, leaf, gpus(1))
    stand = QueueUsage(built, Division(), gpus(8))
    assert stand.used[built.slot("d")][0] == 2000
    assert stand.fixed[built.slot("d")][0] == 1000


def test_adding_goes_to_the_top_and_is_undone_by_the_other_sign() -> None:
    built = columns(*TREE)
    stand = queue_usage(built, 8, used={"u": 1, "other": 1})
    before = stand.copy()
    stand.add(built.slot("u"), (500, 7, 9), (100, 7, 0))
    for name in ("u", "p", "d"):
        assert stand.used[built.slot(name)] == [1500, 7, 9]
        assert stand.fixed[built.slot(name)] == [100, 7, 0]
    assert stand.used[built.slot("other")] == [1000, 0, 0]
    assert before.used[built.slot("u")] == [1000, 0, 0]
    stand.add(built.slot("u"), (500, 7, 9), (100, 7, 0), sign=-1)
    assert (stand.used, stand.fixed) == (before.used, before.fixed)


def test_the_columns_do_not_notice_what_is_tried() -> None:
    built = columns(*TREE)
    stand = queue_usage(built, 8)
    stand.add(built.slot("u"), gpus(1))
    assert not built.used.any()


@pytest.mark.parametrize(
    ("rules", "kept"),
    [
        (queue("a", 2), 4000),  # fair share above the quota
        (queue("a", 6), 6000),
        (queue("a", 2, limit=3), 3000),
        (queue("a", 6, limit=5), 5000),
        (queue("a", -1), NO_BOUND),
        (queue("a", -1, limit=5), 5000),
        (queue("a", 2, over_quota=False), 2000),
    ],
)
def test_what_a_queue_may_keep(rules: QueueSet, kept: int) -> None:
    built = columns(rules)
    stand = queue_usage(built, 8, waiting={"a": 4})
    assert stand.allocatable[0][0] == kept
    assert stand.measure[0][0] == (8000 if kept == NO_BOUND else kept)


def test_without_borrowing_the_quota_is_the_cap() -> None:
    stand = queue_usage(columns(queue("a", 2, over_quota=False, limit=9)), 8)
    assert stand.cap[0] == (2000, NO_BOUND, NO_BOUND)


def test_the_dominant_share_is_the_largest_part() -> None:
    assert dominant_share((500, 10, 1), (1000, 100, 8)) == SCALE // 2
    assert dominant_share((500, 90, 1), (1000, 100, 8)) == SCALE * 9 // 10
    assert dominant_share((0, 0, 3), (1000, 100, 4)) == SCALE * 3 // 4
    assert dominant_share((1, 0, 0), (0, 0, 0)) == SCALE * 1000
    assert dominant_share((0, 0, 0), (0, 0, 0)) == 0
    built = columns(QueueSet("a", ResourceVector(2000, UNLIMITED, UNLIMITED)))
    stand = queue_usage(built, 8, used={"a": 1})
    assert stand.share(0) == SCALE // 2
    assert stand.share(0, gpus(0.5)) == SCALE * 3 // 4
