"""Single rules of the search for victims, on situations that can be read."""

from dataclasses import replace

import numpy as np
import pytest

from carrel_scheduler.core.preemption.legality import Budgets
from carrel_scheduler.core.preemption.search import repair
from carrel_scheduler.core.preemption.search.model import (
    Cleared,
    EligibleNodes,
    GangRequest,
    Impossible,
    Layout,
    SearchLimitReached,
    fitting,
    fitting_one,
    lay_out,
)
from carrel_scheduler.core.preemption.search.search import pruned, search
from carrel_scheduler.core.queues.rules import Tree
from unit.core.preemption.search.situations import flat, free_nodes, unit_budgets, victims_of

Row = tuple[int, int, int, int, int, int, int]


def single(node: int, device: int, queue: int, unit: int) -> Row:
    return (node, 1 << device, 1000, 1, 1, queue, unit)


def layout_of(
    rows: list[Row],
    cost: list[int],
    budgets: Budgets,
    *,
    devices: int = 2,
    nodes: int = 2,
    order: list[int] | None = None,
) -> Layout:
    candidates = victims_of(rows, cost, order)
    return lay_out(free_nodes(devices, nodes), candidates, unit_budgets(candidates, budgets))


def units_of(claim: GangRequest, layout: Layout) -> list[int]:
    answer = search(claim, layout)
    assert isinstance(answer, Cleared)
    return sorted(int(unit) for unit in answer.units)


def test_the_cheapest_node_is_cleared() -> None:
    rows = [single(n, d, 0, 2 * n + d) for n in range(2) for d in range(2)]
    layout = layout_of(rows, [5, 5, 1, 8], flat(-1))
    answer = search(GangRequest(1, 2), layout)
    assert isinstance(answer, Cleared)
    assert (sorted(answer.units.tolist()), answer.nodes.tolist(), answer.cost) == ([2, 3], [1], 9)


@pytest.mark.parametrize("rank", [[0, 1, 2], [2, 1, 0]])
def test_tasks_go_to_nodes_that_were_cleared_for_them_before_others(rank: list[int]) -> None:
    """Nodes 0 and 2 have a free device each; the only unit holds both of node 1."""
    victims = victims_of([(1, 3, 1000, 1, 1, 0, 0)], [5])
    free = EligibleNodes(
        np.ones(3, np.bool_), np.array([[1000, 0, 1000], [0, 0, 0]], np.int16),
        np.zeros((2, 3), np.int64), np.array(rank),
    )  # fmt: skip
    answer = search(GangRequest(3, 1), lay_out(free, victims, unit_budgets(victims, flat(-1))))
    assert isinstance(answer, Cleared)
    assert answer.nodes.tolist() == [1, 1, rank.index(0)]


def test_greed_would_be_stuck_where_budgets_bind() -> None:
    """Node A has a victim of each queue and is cheapest; only B and C together are legal."""
    rows = [single(0, 0, 0, 0), single(0, 1, 1, 1), single(1, 0, 0, 2), single(2, 0, 1, 3)]
    victims = victims_of(rows, [0, 1, 2, 2])
    eligible_nodes = EligibleNodes(
        np.ones(3, np.bool_), np.array([[0, 0, 0], [0, 1000, 1000]], np.int16),
        np.zeros((2, 3), np.int64), np.arange(3),
    )  # fmt: skip
    units = unit_budgets(victims, flat(1000, 1000))
    layout = lay_out(eligible_nodes, victims, units)
    assert units_of(GangRequest(2, 2), layout) == [2, 3]


def test_equal_costs_follow_the_order_and_spare_the_latest_first() -> None:
    rows = [single(0, 0, 0, 0), single(1, 0, 0, 1), single(0, 1, 0, 2), (1, 2, 1000, 1, 1, 0, 3)]
    layout = layout_of(rows, [7, 7, 7, 7], flat(-1), order=[0, 1, 2, 3])
    assert units_of(GangRequest(1, 2), layout) == [0, 2]
    layout = layout_of(rows, [7, 7, 7, 7], flat(-1), order=[3, 0, 2, 1])
    assert units_of(GangRequest(1, 2), layout) == [1, 3]


def test_the_last_victim_of_a_queue_may_overshoot_but_no_further() -> None:
    rows = [(0, 3, 1000, 1, 1, 0, 0), (1, 3, 1000, 1, 1, 0, 1)]
    layout = layout_of(rows, [1, 2], flat(500))
    assert units_of(GangRequest(1, 2), layout) == [0]
    answer = search(GangRequest(2, 2), layout)
    assert answer == Impossible("budgets")


@pytest.mark.parametrize(("counted", "both"), [(500, False), (200, True)])
def test_what_units_hold_beside_devices_counts_for_their_queue(counted: int, *, both: bool) -> None:
    rows = [(0, 0, 0, 8, 8, 0, 0), (0, 0, 0, 8, 8, 0, 1)]
    victims = replace(victims_of(rows, [1, 2]), gpu=np.full(2, counted))
    units = unit_budgets(victims, flat(500))
    assert units_of(GangRequest(1, cpu_milli=8), lay_out(free_nodes(1, 1), victims, units)) == [0]
    answer = search(GangRequest(1, cpu_milli=16), lay_out(free_nodes(1, 1), victims, units))
    assert isinstance(answer, Cleared) == both


def test_a_task_that_frees_nothing_still_missing_is_no_part_of_a_place() -> None:
    """One frees MiB, then one only millicores is needed: a second one with MiB costs nothing."""
    node = [(0, 0, 0, 0, 9, 0, 0), (0, 0, 0, 0, 9, 0, 1), (0, 0, 0, 9, 0, 0, 2)]
    rows = [*node, (1, 0, 0, 9, 9, 0, 3), *((n, 0, 0, 9, 9, 0, n + 2) for n in range(2, 24))]
    layout = layout_of(rows, [1, 3, 5, 8] + [99] * 22, flat(-1), nodes=24)
    assert units_of(GangRequest(1, cpu_milli=9, memory_mib=9), layout) == [0, 2]


@pytest.mark.parametrize("cost", [[9, 1, 5], [1, 9, 5]])
def test_of_units_that_could_stand_in_for_one_another_the_dearest_is_spared(
    cost: list[int],
) -> None:
    rows = [single(0, 0, 0, 0), single(0, 1, 0, 1), single(1, 0, 0, 2)]
    layout, both = layout_of(rows, cost, flat(-1)), np.arange(2)
    found = pruned(GangRequest(1, 1), layout, both, np.zeros(2, np.int64))
    assert found is not None
    assert found.tolist() == [cost.index(1)]


def test_a_department_guards_its_projects() -> None:
    rows = [single(0, 0, 0, 0), single(1, 0, 1, 1)]
    excess = np.array([[5000, 0, 0], [5000, 0, 0], [1000, 0, 0]])
    budgets = Budgets.of(Tree(np.array([2, 2, -1])), excess)
    layout = layout_of(rows, [3, 2], budgets, devices=1)
    assert units_of(GangRequest(1, 1), layout) == [1]
    assert isinstance(search(GangRequest(2, 1), layout), Impossible)


def test_queues_that_exceed_nothing_lose_nobody() -> None:
    rows = [single(0, 0, 0, 0), single(1, 0, 1, 1)]
    layout = layout_of(rows, [0, 9], flat(0, 1000), devices=1)
    assert units_of(GangRequest(1, 1), layout) == [1]


def test_a_gang_on_two_nodes_pays_once() -> None:
    rows = [(0, 3, 1000, 1, 1, 0, 0), (1, 3, 1000, 1, 1, 0, 0)]
    rows += [(2, 3, 1000, 1, 1, 0, 1), (3, 3, 1000, 1, 1, 0, 2)]
    layout = layout_of(rows, [10, 6, 6], flat(-1), nodes=4)
    assert units_of(GangRequest(2, 2), layout) == [0]
    assert units_of(GangRequest(1, 2), layout) == [1]


def test_among_many_units_too_a_gang_on_two_nodes_pays_once() -> None:
    """Three that cost 1, one of them on two nodes, and so many dear ones that not all are tried."""
    rows = [single(0, 0, 0, 0), single(3, 0, 0, 1), single(1, 0, 0, 2), single(2, 0, 0, 2)]
    dear = [single(n, 0, 0, n - 1) for n in range(4, 25)]
    layout = layout_of([*rows, *dear], [1] * 3 + [99] * 21, flat(-1), devices=1, nodes=25)
    assert units_of(GangRequest(2, 1), layout) == [2]


def test_members_that_keep_apart_need_several_nodes() -> None:
    rows = [single(n, d, 0, 2 * n + d) for n in range(2) for d in range(2)]
    layout = layout_of(rows, [1, 1, 50, 60], flat(-1))
    assert units_of(GangRequest(2, 1, most_per_node=1), layout) in ([0, 2], [1, 2])


def test_a_task_without_devices_is_taken_where_millicores_are_short() -> None:
    rows: list[Row] = [(0, 1, 1000, 1, 1, 0, 0), (0, 0, 0, 8, 8, 0, 1)]
    layout = layout_of(rows, [5, 6], flat(-1), devices=1, nodes=1)
    assert units_of(GangRequest(1, 1), layout) == [0]
    assert units_of(GangRequest(1, 1, cpu_milli=6), layout) == [0, 1]


def big(nodes: int, seed: int, keep: float) -> tuple[Layout, GangRequest]:
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
    return lay_out(
        free_nodes(8, nodes), victims, unit_budgets(victims, flat(*excess.tolist()))
    ), GangRequest(nodes // 2, 8)


@pytest.mark.parametrize("keep", [0.3, 0.42, 0.46])
def test_large_claims_under_tight_budgets_are_served(keep: float) -> None:
    layout, claim = big(200, 1, keep)
    answer = search(claim, layout)
    assert isinstance(answer, Cleared)
    assert layout.budgets.legal(answer.units)
    assert len(set(answer.nodes.tolist())) == 100


@pytest.mark.parametrize(
    ("width", "cpu", "tasks"),
    [(8, 0, 100), (4, 0, 150), (2, 0, 300), (1, 0, 300), (1, 2, 200), (2, 3, 100), (1, 8, 60)],
)
def test_large_claims_cost_the_least_where_no_budget_binds(
    width: int, cpu: int, tasks: int
) -> None:
    """Units of a node are alike but for their costs, so its cheapest go first."""
    layout, _ = big(200, 1, 0.0)
    cost, each = np.sort(layout.candidates.cost.reshape(200, 8), axis=1), max(width, cpu)
    places = cost[:, : 8 // each * each].reshape(-1, each).sum(axis=1)
    answer = search(GangRequest(tasks, width, cpu_milli=cpu), layout)
    assert isinstance(answer, Cleared)
    assert answer.cost == np.sort(places)[:tasks].sum()


def test_tight_budgets_are_met_among_equal_costs_too() -> None:
    layout, claim = big(200, 1, 0.44)
    layout.candidates.cost[:] = 5
    answer = search(claim, layout)
    assert isinstance(answer, Cleared)
    assert layout.budgets.legal(answer.units)


def test_what_the_search_cannot_settle_is_not_called_impossible(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(repair, "PRICED", 0)
    layout, claim = big(100, 2, 0.495)
    answer = search(claim, layout)
    assert isinstance(answer, SearchLimitReached)


def test_the_answer_does_not_depend_on_node_slots() -> None:
    rows = [single(n, d, 0, 2 * n + d) for n in range(6) for d in range(2)]
    layout = layout_of(rows, [4] * 4 + [3] * 8, flat(-1), nodes=6)
    first = search(GangRequest(2, 2), layout)
    swapped = [single(5 - n, d, 0, 2 * n + d) for n in range(6) for d in range(2)]
    eligible_nodes = free_nodes(2, 6)
    turned = EligibleNodes(
        eligible_nodes.eligible, eligible_nodes.devices, eligible_nodes.host, np.arange(5, -1, -1)
    )
    candidates = victims_of(swapped, [4] * 4 + [3] * 8)
    units = unit_budgets(candidates, flat(-1))
    second = search(GangRequest(2, 2), lay_out(turned, candidates, units))
    assert isinstance(first, Cleared)
    assert isinstance(second, Cleared)
    assert sorted(first.units.tolist()) == sorted(second.units.tolist()) == [4, 5, 6, 7]


def test_fits_on_one_node_and_on_all_agree() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        devices = rng.choice([0, 200, 500, 1000], (4, 6))
        host = rng.integers(0, 20, (2, 6))
        width, size = int(rng.integers(0, 4)), int(rng.choice([100, 250, 600, 1000]))
        claim = GangRequest(1, width, size, 3, 2, 9)
        one = [fitting_one(claim, devices[:, n].tolist(), *host[:, n].tolist()) for n in range(6)]
        assert fitting(claim, devices, host).tolist() == one
