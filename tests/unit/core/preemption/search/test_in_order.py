"""Victims in their order, against taking them one by one."""

from collections import defaultdict
from dataclasses import replace

import pytest

from carrel_scheduler.core.preemption.search.in_order import first_in_order
from carrel_scheduler.core.preemption.search.model import lay_out
from unit.core.preemption.search.situations import (
    Situation,
    legal,
    random_situation,
    suffices,
    unit_budgets,
    victims_of,
)

Amounts = list[int]


def found(situation: Situation) -> list[int] | None:
    units = unit_budgets(situation.victims, situation.budgets)
    chosen = first_in_order(
        situation.claim, lay_out(situation.eligible_nodes, situation.victims, units)
    )
    return None if chosen is None else chosen.tolist()


def one_by_one(situation: Situation) -> list[int] | None:
    """Units in order, each while its queues exceed what they keep, until the request fits."""
    taken = list[int]()
    units = in_order(situation)
    for level in ((0, 1, 2, 3), (4, 5)):
        units = while_over(situation, units, level)
    while not suffices(situation, frozenset(taken)):
        if len(taken) == len(units):
            return None
        taken = units[: len(taken) + 1]
    return taken


def in_order(situation: Situation) -> list[int]:
    """Units with a task on an eligible node, whose queues may all lose something."""
    victims = situation.victims
    useful = {
        unit
        for node, unit in zip(victims.node.tolist(), victims.unit.tolist(), strict=True)
        if situation.eligible_nodes.eligible[node]
    }
    return sorted(
        (unit for unit in useful if legal(situation, frozenset({unit}))),
        key=victims.order.tolist().__getitem__,
    )


def while_over(situation: Situation, units: list[int], level: tuple[int, ...]) -> list[int]:
    budgets, gone, kept = situation.budgets, defaultdict[int, Amounts](lambda: [0] * 3), []
    for unit in units:
        queue, amounts = held(situation, unit)
        queue = queue if queue in level else int(budgets.tree.parent[queue])
        before, most = gone[queue], budgets.excess[queue].tolist()
        if budgets.open[queue] or any(a < b for a, b in zip(before, most, strict=True)):
            kept.append(unit)
        gone[queue] = [a + b for a, b in zip(before, amounts, strict=True)]
    return kept


def held(situation: Situation, unit: int) -> tuple[int, Amounts]:
    """The queue of a unit and what it holds."""
    victims, rows = situation.victims, (situation.victims.unit == unit).nonzero()[0].tolist()
    gpus = sum(int(victims.mask[row]).bit_count() * int(victims.share[row]) for row in rows)
    host = [int(column[rows].sum()) for column in (victims.cpu_milli, victims.memory_mib)]
    return int(victims.queue[rows[0]]), [gpus, *host]


@pytest.mark.parametrize("start", range(0, 200, 50))
def test_they_are_the_shortest_beginning_that_suffices(start: int) -> None:
    answers = list[bool]()
    for seed in range(start, start + 50):
        situation = random_situation(seed)
        expected = one_by_one(situation)
        assert found(situation) == expected, seed
        answers.append(bool(expected))
    assert 5 < sum(answers) < 50


@pytest.mark.parametrize("spread", [1, 3, 100])
def test_gaps_in_the_order_do_not_matter(spread: int) -> None:
    for seed in range(40):
        near = random_situation(seed)
        far = near.victims.order * spread + spread
        sparse = replace(near, victims=replace(near.victims, order=far))
        assert found(sparse) == found(near)


def test_without_victims_the_free_capacity_decides() -> None:
    near = random_situation(1)
    nobody = replace(near, victims=victims_of([], []))
    assert found(nobody) == ([] if suffices(nobody, frozenset()) else None)
