"""The core against the optimum on small clusters; ``python -m benchmarks.oracle`` runs more."""

import pytest

from benchmarks import oracle_packing
from benchmarks.oracle import NEAR, PACKING_GOAL, VICTIMS_GOAL, victim_ratios
from benchmarks.oracle_packing import Cluster
from benchmarks.oracle_victims import Case, Running, cost, decided, least
from benchmarks.report import median
from unit.core.situations import asking, node, training

pytestmark = pytest.mark.slow

PACKING_CASES = 60
VICTIM_CASES = range(240)
LEAST_JUDGED = 80


def test_half_of_the_clusters_are_packed_within_five_percent_of_the_optimum() -> None:
    ratios = [oracle_packing.ratio(seed) for seed in range(PACKING_CASES)]
    assert max(ratios) <= 1
    assert median(ratios) >= PACKING_GOAL


@pytest.fixture(scope="module")
def victims() -> tuple[list[float], int, int]:
    return victim_ratios(VICTIM_CASES)


def test_victims_lose_within_five_percent_of_the_least(
    victims: tuple[list[float], int, int],
) -> None:
    ratios, missed, _ = victims
    judged = len(ratios) + missed
    assert judged >= LEAST_JUDGED
    assert sum(ratio <= NEAR for ratio in ratios) / judged >= VICTIMS_GOAL


def test_only_allowed_sets_are_stopped(victims: tuple[list[float], int, int]) -> None:
    assert victims[2] == 0


def test_the_optimum_leaves_out_the_job_in_the_way() -> None:
    jobs = tuple(
        training(uid, "q", request=asking(gpus, cpu=1), tasks=tasks)
        for uid, gpus, tasks in (("first", 1, 1), ("large", 2, 2), ("half", 0.5, 2))
    )
    assert oracle_packing.optimum(Cluster((node("n", 4),), jobs)) == 4000
    assert oracle_packing.optimum(Cluster((node("n", 5),), jobs)) == 5000
    assert oracle_packing.optimum(Cluster((node("n", 3), node("m", 3)), jobs)) == 6000


def test_the_least_loss_is_found_by_looking_at_every_set() -> None:
    jobs = [
        Running("cheap", "q", 1000, [(0, (0,))], 99_000.0, None, legal=True),
        Running("dear", "q", 1000, [(0, (1,))], 90_000.0, None, legal=True),
        Running("kept", "q", 1000, [(1, (0,))], 99_999.0, None, legal=False),
    ]
    case = Case([2, 1], jobs, gpus=1, tasks=1)
    assert least(case) == cost(case, frozenset({"cheap"}))
    found = decided(case)
    assert found is not None
    assert found.stopped == {"cheap"}
    assert least(Case([2, 1], jobs, gpus=2, tasks=2)) is None
