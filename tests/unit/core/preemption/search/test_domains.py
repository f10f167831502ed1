"""Domains in turn: the cheapest that was tried, and a no only when all were."""

import numpy as np
import pytest

from carrel_scheduler.core.preemption.search.board import Board, lay_out
from carrel_scheduler.core.preemption.search.claims import (
    Claim,
    Cleared,
    Impossible,
    Limits,
    NotFound,
)
from carrel_scheduler.core.preemption.search.clear import clear
from unit.core.preemption.search.situations import flat, free_ground, victims_of

DOMAINS = np.array([0, 1, 2])


def board(queues: list[int], cost: list[int]) -> Board:
    """Three nodes of two devices, a unit on each; `queues` of the six units, in order."""
    rows = [(n // 2, 1 << n % 2, 1000, 1, 1, queue, n) for n, queue in enumerate(queues)]
    return lay_out(free_ground(2, 3), victims_of(rows, cost), flat(1000, 1000))


@pytest.mark.parametrize("tried", [1, 2])
def test_domains_that_were_not_tried_are_no_proof(tried: int) -> None:
    """One of a queue may go, so no node with two of the same queue can be cleared."""
    blocked = board([0, 0, 1, 1, 0, 0], [1] * 6)
    answer = clear(Claim(1, 2), blocked, domain=DOMAINS, limits=Limits(domains=tried))
    assert answer == NotFound(("domains",))


def test_a_proof_for_every_domain_is_a_proof() -> None:
    blocked = board([0, 0, 1, 1, 0, 0], [1] * 6)
    answer = clear(Claim(1, 2), blocked, domain=DOMAINS, limits=Limits(domains=3))
    assert isinstance(answer, Impossible)


def test_the_cheapest_domain_is_exact_when_all_others_are_refused() -> None:
    only = clear(Claim(1, 2), board([0, 0, 1, 0, 1, 1], [1, 1, 30, 30, 1, 1]), domain=DOMAINS)
    assert isinstance(only, Cleared)
    assert (only.units.tolist(), only.cost, only.exact) == ([2, 3], 60, True)
    two = clear(Claim(1, 2), board([0, 1, 1, 0, 1, 1], [9, 9, 3, 3, 1, 1]), domain=DOMAINS)
    assert isinstance(two, Cleared)
    assert (two.units.tolist(), two.cost) == ([2, 3], 6)


def test_nodes_without_a_domain_are_of_no_use() -> None:
    situation = board([0, 1, 0, 1, 0, 1], [1, 1, 5, 5, 9, 9])
    answer = clear(Claim(1, 2), situation, domain=np.array([-1, 0, 0]))
    assert isinstance(answer, Cleared)
    assert answer.units.tolist() == [2, 3]
    assert isinstance(clear(Claim(2, 2), situation, domain=np.array([-1, 0, 1])), Impossible)
