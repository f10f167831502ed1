"""The tables behind the value of nodes, against plain counting."""

import random

import numpy as np
import pytest

from carrel_scheduler.core.layers import Counts, Milli
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.scoring.value_tables import (
    CPU_STEP,
    FEW,
    NeedTables,
    Single,
    TypicalNeed,
)

NEEDS = (
    TypicalNeed(2000, 1, MILLI, Request(gpus=1), 0.3),
    TypicalNeed(500, 0, 450, Request(share_milli=450), 0.3),
    TypicalNeed(0, 0, 200, Request(share_milli=200), 0.2),
    TypicalNeed(4000, 4, MILLI, Request(gpus=4), 0.1),
    TypicalNeed(3000, 0, 450, Request(share_milli=450), 0.1),
)
DEVICES, CPU = 4, 16_000
TABLES = NeedTables(NEEDS, DEVICES, CPU)


def drawn(nodes: int, seed: int = 1) -> tuple[Milli, Counts]:
    """(D, n) free thousandths and (n,) steps of free CPU."""
    dice = random.Random(seed)
    free = [[dice.choice((0, 199, 200, 450, 650, 999, MILLI)) for _ in range(nodes)]
            for _ in range(DEVICES)]  # fmt: skip
    cpu = [dice.choice((0, 1, 3, 4, 7, 8, 31)) for _ in range(nodes)]
    return np.array(free, np.int16), np.array(cpu, np.int64)


def fits(need: TypicalNeed, devices: list[int], cpu: int) -> float:
    """How many of a need a node holds; parts of one where CPU bounds it."""
    if need.whole:
        count: float = devices.count(MILLI) // need.whole
    else:
        count = sum(free // need.share for free in devices)
    wanted = -(-need.cpu_milli // CPU_STEP)
    if cpu < wanted:
        return 0.0
    return min(count, cpu / wanted) if wanted else count


@pytest.mark.parametrize("nodes", [1, 2, FEW, FEW + 1, 3 * FEW])
def test_sums_of_many_nodes_are_those_of_each_by_itself(nodes: int) -> None:
    devices, _ = drawn(nodes)
    together = TABLES.sums(devices)
    for place in range(nodes):
        alone = TABLES.sums(devices[:, place : place + 1])
        assert together.counts[place].tolist() == alone.counts[0].tolist()
        assert together.amounts[place].tolist() == alone.amounts[0].tolist()


def test_sums_count_what_fits_and_what_is_of_use() -> None:
    devices, _ = drawn(50)
    found = TABLES.sums(devices)
    assert TABLES.sizes == [200, 450]
    for place, free in enumerate(devices.T.tolist()):
        counts = [sum(one // size for one in free) for size in TABLES.sizes]
        counts.append(free.count(MILLI))
        assert (found.counts[place] // TABLES.steps).tolist() == counts
        usable = [sum(one for one in free if one >= size) for size in TABLES.sizes]
        assert found.amounts[place].tolist() == usable


def test_held_is_counted_need_by_need_on_the_nodes_that_are_allowed() -> None:
    devices, cpu = drawn(50)
    dice = random.Random(2)
    allowed = np.array([[dice.random() < 0.7 for _ in NEEDS] for _ in range(50)])
    found = TABLES.held(TABLES.sums(devices), cpu, allowed)
    for m, need in enumerate(NEEDS):
        wanted = sum(
            fits(need, free, steps)
            for free, steps, may in zip(
                devices.T.tolist(), cpu.tolist(), allowed[:, m], strict=True
            )
            if may
        )
        assert found[m] == pytest.approx(wanted), need


@pytest.mark.parametrize("part", [0.0, 0.25])
def test_values_are_the_weighted_sum_over_needs(part: float) -> None:
    devices, cpu = drawn(30)
    weights = np.array([[1.0, 2.0, 4.0, 8.0, 16.0], [3.0, 0.0, 1.0, 0.0, 5.0]])
    group = np.arange(30) % 2
    tables, sums = TABLES.weighted(weights, part), TABLES.sums(devices)
    found = tables.value(tables.places(sums.counts, group), sums.amounts.copy(), cpu, group)
    for place, (free, steps) in enumerate(zip(devices.T.tolist(), cpu.tolist(), strict=True)):
        wanted = 0.0
        for need, weight in zip(NEEDS, weights[group[place]], strict=True):
            enough = steps >= -(-need.cpu_milli // CPU_STEP)
            full = free.count(MILLI)
            if need.whole:
                usable = MILLI * full * (full >= need.whole)
            else:
                usable = sum(one for one in free if one >= need.share)
            wanted += weight * (usable * enough + part * need.milli * fits(need, free, steps))
        assert found[place] == pytest.approx(wanted)


def test_one_node_by_itself_is_worth_the_same_to_the_last_bit() -> None:
    devices, cpu = drawn(200)
    dice = random.Random(3)
    weights = np.array([[dice.random() ** 9 * 1e5 for _ in NEEDS] for _ in range(2)])
    group = np.arange(200) % 2
    tables, sums = TABLES.weighted(weights, 0.7), TABLES.sums(devices)
    found = tables.value(tables.places(sums.counts, group), sums.amounts.copy(), cpu, group)
    single = Single(TABLES, tables)
    for place, (free, steps) in enumerate(zip(devices.T.tolist(), cpu.tolist(), strict=True)):
        state = single.state(free, place % 2)
        assert single.value(state, steps * TABLES.step + TABLES.step - 1) == found[place]


def test_a_placement_leaves_what_the_node_is_worth_after_it() -> None:
    devices, cpu = drawn(100)
    tables = TABLES.weighted(np.array([[1.0, 2.0, 4.0, 8.0, 16.0]]), 0.7)
    single = Single(TABLES, tables)
    for free, steps in zip(devices.T.tolist(), cpu.tolist(), strict=True):
        before, milli = single.state(free, 0), steps * TABLES.step
        whole = single.after_whole((1, 0, TABLES.step), before, free, milli)
        left = max(0, milli - TABLES.step)
        if MILLI in free:
            rest = list(free)
            rest[rest.index(MILLI)] = 0
            assert whole == single.value(single.state(rest, 0), left)
        else:
            assert whole == -float("inf")
        each = [-float("inf")]
        for device, there in enumerate(free):
            if there >= 450:
                rest = [*free[:device], there - 450, *free[device + 1 :]]
                each.append(single.value(single.state(rest, 0), left))
        assert single.best_share((0, 450, TABLES.step), before, free, milli) == max(each)
