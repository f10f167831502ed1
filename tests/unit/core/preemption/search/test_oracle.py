"""Clearing against every set of victims, on situations small enough to look at all of them."""

from collections import Counter

import numpy as np
import pytest

from carrel_scheduler.core.preemption.search.model import Answer, Cleared, Impossible
from unit.core.preemption.search.situations import (
    legal,
    optimum,
    places,
    random_situation,
    suffices,
)

pytestmark = pytest.mark.slow

SEEDS = range(120)


@pytest.fixture(scope="module")
def answers() -> list[tuple[int, Answer, int | None]]:
    found = []
    for seed in SEEDS:
        s = random_situation(seed)
        found.append((seed, s.answer(), optimum(s)))
    return found


def test_a_no_is_never_wrong(answers: list[tuple[int, Answer, int | None]]) -> None:
    refused = [(seed, best) for seed, answer, best in answers if isinstance(answer, Impossible)]
    assert refused
    assert [seed for seed, best in refused if best is not None] == []


def test_every_set_is_legal_suffices_and_names_nodes_with_room(
    answers: list[tuple[int, Answer, int | None]],
) -> None:
    for seed, answer, _ in answers:
        if not isinstance(answer, Cleared):
            continue
        s, units = random_situation(seed), frozenset(answer.units.tolist())
        assert legal(s, units)
        assert suffices(s, units)
        fits = places(s, units)
        used = Counter(answer.nodes.tolist())
        assert sum(used.values()) == s.claim.tasks
        assert all(count <= fits[node] for node, count in used.items())


def test_the_cost_is_within_five_percent_of_the_least_in_95_of_100(
    answers: list[tuple[int, Answer, int | None]],
) -> None:
    near = []
    for _, answer, best in answers:
        if best is None:
            assert not isinstance(answer, Cleared)
            continue
        near.append(isinstance(answer, Cleared) and answer.cost <= 1.05 * best)
    assert len(near) > 60
    assert np.mean(near) >= 0.95
