"""Single rules of clearing, on situations that can be read."""

import numpy as np
import pytest

from carrel_scheduler.core.preemption.search.board import Board, lay_out
from carrel_scheduler.core.preemption.search.claims import (
    Budgets,
    Claim,
    Cleared,
    Ground,
    Impossible,
    Limits,
    NotFound,
)
from carrel_scheduler.core.preemption.search.clear import clear
from carrel_scheduler.core.queues.rules import Tree
from unit.core.preemption.search.situations import flat, free_ground, victims_of

Row = tuple[int, int, int, int, int, int, int]


def single(node: int, device: int, queue: int, unit: int) -> Row:
    return (node, 1 << device, 1000, 1, 1, queue, unit)


def board_of(
    rows: list[Row],
    cost: list[int],
    budgets: Budgets,
    *,
    devices: int = 2,
    nodes: int = 2,
    order: list[int] | None = None,
) -> Board:
    return lay_out(free_ground(devices, nodes), victims_of(rows, cost, order), budgets)


def units_of(claim: Claim, board: Board) -> list[int]:
    answer = clear(claim, board)
    assert isinstance(answer, Cleared)
    return [int(unit) for unit in answer.units]


def test_the_cheapest_node_is_cleared() -> None:
    rows = [single(n, d, 0, 2 * n + d) for n in range(2) for d in range(2)]
    board = board_of(rows, [5, 5, 1, 8], flat(-1))
    answer = clear(Claim(1, 2), board)
    assert isinstance(answer, Cleared)
    assert (answer.units.tolist(), answer.nodes.tolist(), answer.cost) == ([2, 3], [1], 9)
    assert answer.exact


def test_greed_would_be_stuck_where_budgets_bind() -> None:
    """Node A has a victim of each queue and is cheapest; only B and C together are legal."""
    rows = [single(0, 0, 0, 0), single(0, 1, 1, 1), single(1, 0, 0, 2), single(2, 0, 1, 3)]
    board = board_of(rows, [0, 1, 2, 2], flat(1000, 1000), nodes=3)
    ground = Ground(
        np.ones(3, np.bool_), np.array([[0, 0, 0], [0, 1000, 1000]], np.int16),
        np.zeros((2, 3), np.int64), np.arange(3),
    )  # fmt: skip
    board = lay_out(ground, board.victims, board.purse.budgets)
    assert units_of(Claim(2, 2), board) == [2, 3]


def test_equal_costs_follow_the_order_and_spare_the_latest_first() -> None:
    rows = [single(0, 0, 0, 0), single(1, 0, 0, 1), single(0, 1, 0, 2), (1, 2, 1000, 1, 1, 0, 3)]
    board = board_of(rows, [7, 7, 7, 7], flat(-1), order=[0, 1, 2, 3])
    assert units_of(Claim(1, 2), board) == [0, 2]
    board = board_of(rows, [7, 7, 7, 7], flat(-1), order=[3, 0, 2, 1])
    assert units_of(Claim(1, 2), board) == [1, 3]


def test_the_last_victim_of_a_queue_may_overshoot_but_no_further() -> None:
    rows = [(0, 3, 1000, 1, 1, 0, 0), (1, 3, 1000, 1, 1, 0, 1)]
    board = board_of(rows, [1, 2], flat(500))
    assert units_of(Claim(1, 2), board) == [0]
    answer = clear(Claim(2, 2), board)
    assert answer == Impossible("budgets", 2000, 4000)


def test_a_department_guards_its_projects() -> None:
    rows = [single(0, 0, 0, 0), single(1, 0, 1, 1)]
    excess = np.array([[5000, 0, 0], [5000, 0, 0], [1000, 0, 0]])
    budgets = Budgets(Tree(np.array([2, 2, -1])), excess, np.zeros(3, np.bool_))
    board = board_of(rows, [3, 2], budgets, devices=1)
    assert units_of(Claim(1, 1), board) == [1]
    assert isinstance(clear(Claim(2, 1), board), Impossible)


def test_queues_that_exceed_nothing_lose_nobody() -> None:
    rows = [single(0, 0, 0, 0), single(1, 0, 1, 1)]
    board = board_of(rows, [0, 9], flat(0, 1000), devices=1)
    assert units_of(Claim(1, 1), board) == [1]


def test_a_gang_on_two_nodes_pays_once() -> None:
    rows = [(0, 3, 1000, 1, 1, 0, 0), (1, 3, 1000, 1, 1, 0, 0)]
    rows += [(2, 3, 1000, 1, 1, 0, 1), (3, 3, 1000, 1, 1, 0, 2)]
    board = board_of(rows, [10, 6, 6], flat(-1), nodes=4)
    assert units_of(Claim(2, 2), board) == [0]
    assert units_of(Claim(1, 2), board) == [1]


def test_tasks_lie_together_in_the_cheaper_domain() -> None:
    rows = [single(n, 0, 0, n) for n in range(4)]
    board = board_of(rows, [1, 9, 4, 5], flat(-1), devices=1, nodes=4)
    answer = clear(Claim(2, 1), board, domain=np.array([0, 0, 1, 1]))
    assert isinstance(answer, Cleared)
    assert answer.units.tolist() == [2, 3]
    assert isinstance(clear(Claim(3, 1), board, domain=np.array([0, 0, 1, 1])), Impossible)


def test_members_that_keep_apart_need_several_nodes() -> None:
    rows = [single(n, d, 0, 2 * n + d) for n in range(2) for d in range(2)]
    board = board_of(rows, [1, 1, 50, 60], flat(-1))
    assert units_of(Claim(2, 1, most_per_node=1), board) in ([0, 2], [1, 2])


def test_a_task_without_devices_is_taken_where_millicores_are_short() -> None:
    rows: list[Row] = [(0, 1, 1000, 1, 1, 0, 0), (0, 0, 0, 8, 8, 0, 1)]
    board = board_of(rows, [5, 6], flat(-1), devices=1, nodes=1)
    assert units_of(Claim(1, 1), board) == [0]
    assert units_of(Claim(1, 1, cpu_milli=6), board) == [0, 1]


def big(nodes: int, seed: int, keep: float) -> tuple[Board, Claim]:
    """Nodes full of one-device units of 40 queues that keep a part of what they hold."""
    rng = np.random.default_rng(seed)
    count = 8 * nodes
    queue = rng.integers(0, 40, count)
    rows = np.stack([
        np.repeat(np.arange(nodes), 8), 1 << np.tile(np.arange(8), nodes), np.full(count, 1000),
        np.ones(count), np.ones(count), queue, np.arange(count),
    ], axis=1).astype(np.int64)  # fmt: skip
    excess = np.ceil(np.bincount(queue, minlength=40) * (1 - keep)).astype(np.int64) * 1000
    victims = victims_of(
        [tuple(row) for row in rows.tolist()], rng.integers(1, 1000, count).tolist(),
        rng.permutation(count).tolist(),
    )  # fmt: skip
    return lay_out(free_ground(8, nodes), victims, flat(*excess.tolist())), Claim(nodes // 2, 8)


@pytest.mark.parametrize("keep", [0.3, 0.42, 0.46])
def test_large_claims_under_tight_budgets_stay_near_the_bound(keep: float) -> None:
    board, claim = big(200, 1, keep)
    answer = clear(claim, board)
    assert isinstance(answer, Cleared)
    assert board.purse.legal(answer.units)
    assert len(set(answer.nodes.tolist())) == 100
    assert answer.gap is not None
    assert answer.gap <= 0.05


def test_tight_budgets_are_met_among_equal_costs_too() -> None:
    board, claim = big(200, 1, 0.44)
    board.victims.cost[:] = 5
    answer = clear(claim, board)
    assert isinstance(answer, Cleared)
    assert board.purse.legal(answer.units)
    assert answer.gap == 0.0


def test_what_the_search_cannot_settle_is_not_called_impossible() -> None:
    board, claim = big(100, 2, 0.495)
    answer = clear(claim, board, limits=Limits(rounds=3, walks=1))
    assert isinstance(answer, NotFound)


def test_the_answer_does_not_depend_on_node_slots() -> None:
    rows = [single(n, d, 0, 2 * n + d) for n in range(6) for d in range(2)]
    board = board_of(rows, [4] * 4 + [3] * 8, flat(-1), nodes=6)
    first = clear(Claim(2, 2), board)
    swapped = [single(5 - n, d, 0, 2 * n + d) for n in range(6) for d in range(2)]
    ground = free_ground(2, 6)
    turned = Ground(ground.eligible, ground.devices, ground.host, np.arange(5, -1, -1))
    second = clear(Claim(2, 2), lay_out(turned, victims_of(swapped, [4] * 4 + [3] * 8), flat(-1)))
    assert isinstance(first, Cleared)
    assert isinstance(second, Cleared)
    assert first.units.tolist() == second.units.tolist() == [4, 5, 6, 7]
