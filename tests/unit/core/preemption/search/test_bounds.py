"""Bounds are never below what is possible, and stay right when rooms change."""

import numpy as np

from carrel_scheduler.core.preemption.search.board import lay_out
from carrel_scheduler.core.preemption.search.bounds import by_one_queue, upper
from carrel_scheduler.core.preemption.search.claims import Claim, Ground
from carrel_scheduler.core.preemption.search.fitting import fitting, fitting_one
from unit.core.preemption.search.situations import random_situation


def test_upper_is_never_below_the_count_with_everybody_gone() -> None:
    claims = [Claim(1, w, 1000, c, m) for w in (0, 1, 2, 4, 5) for c in (0, 3, 9) for m in (0, 7)]
    claims += [Claim(1, w, s, c) for w in (1, 2) for s in (100, 250, 700) for c in (0, 5)]
    columns = np.array([(c.width, c.size, c.cpu_milli, c.memory_mib) for c in claims]).T
    for seed in range(40):
        s = random_situation(seed)
        board = lay_out(s.ground, s.victims, s.budgets)
        bound = upper(board).tasks(columns[0], columns[1], columns[2], columns[3], None)
        for claim, most in zip(claims, bound.tolist(), strict=True):
            if claim.amounts == (0, 0, 0):
                continue
            fits = fitting(claim, board.devices, board.host)[s.ground.eligible]
            assert fits.sum() <= most
            if not fits.any() and claim.width * claim.size >= 5000:
                assert most == 0


def test_upper_by_class_of_nodes_leaves_out_what_a_claim_may_not_use() -> None:
    s = random_situation(3)
    board = lay_out(s.ground, s.victims, s.budgets)
    kind = np.arange(len(s.ground.rank)) % 2
    tables = upper(board, kind, 2)
    one = np.array([1])
    size = np.array([1000])
    both = [
        int(tables.tasks(one, size, one * 0, one * 0, np.array([[k == 0, k == 1]]))[0])
        for k in range(2)
    ]
    assert sum(both) == int(tables.tasks(one, size, one * 0, one * 0, None)[0])


def test_scalar_and_vector_fits_agree() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        devices = rng.choice([0, 200, 500, 1000], (4, 6))
        host = rng.integers(0, 20, (2, 6))
        claim = Claim(1, int(rng.integers(0, 4)), int(rng.choice([100, 250, 600, 1000])), 3, 2, 9)
        one = [fitting_one(claim, devices[:, n].tolist(), *host[:, n].tolist()) for n in range(6)]
        assert fitting(claim, devices, host).tolist() == one


def test_refresh_equals_laying_out_anew() -> None:
    s = random_situation(11)
    board = lay_out(s.ground, s.victims, s.budgets)
    devices, host = s.ground.devices.copy(), s.ground.host.copy()
    host[:, 1] += 5
    changed = Ground(s.ground.eligible, devices, host, s.ground.rank)
    board.refresh(changed, np.array([1]))
    anew = lay_out(changed, s.victims, s.budgets)
    assert (board.devices == anew.devices).all()
    assert (board.host == anew.host).all()


def test_one_queue_bound_counts_the_smallest_losses() -> None:
    loss = np.array([[2000, 1000, 1000, 0], [3000, 3000, 3000, 3000]])
    assert by_one_queue(loss, np.array([2000, 5000])).tolist() == [3, 1]
    uneven = np.array([[700, 301, 1000, 5]])
    assert by_one_queue(uneven, np.array([1006])).tolist() == [3]
