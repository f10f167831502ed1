"""Situations of hundreds of units, of the kinds between which clearing has to tell apart.

Costs and amounts are drawn; nearly every device is taken, and queues stand in two levels with
budgets of which some bind. What they cost at most is written in ``quality.json``.
"""

from collections.abc import Callable

import numpy as np

from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.preemption.legality import Budgets
from carrel_scheduler.core.preemption.search.model import EligibleNodes, FreeDevices, GangRequest
from carrel_scheduler.core.queues.rules import NO_BOUND, Tree
from unit.core.preemption.search.situations import Situation, victims_of

Row = tuple[int, int, int, int, int, int, int]
NODES, DEVICES, LEAVES = 24, 8, 12
ENDED = 0.06
FILL = Callable[[np.random.Generator, int], list[Row]]


def single_devices(dice: np.random.Generator, unit: int) -> list[Row]:
    """Rows in which every device has a unit of its own."""
    return [
        (node, 1 << device, 1000, 2, 4, int(dice.integers(LEAVES)), unit + node * DEVICES + device)
        for node in range(NODES)
        for device in range(DEVICES)
    ]


def blocks(dice: np.random.Generator, unit: int) -> list[Row]:
    """Units of one, two or four devices."""
    rows: list[Row] = []
    for node in range(NODES):
        first = 0
        while first < DEVICES:
            width = min(int(dice.choice([1, 2, 4])), DEVICES - first)
            mask = ((1 << width) - 1) << first
            queue = int(dice.integers(LEAVES))
            rows.append((node, mask, 1000, 2 * width, 4 * width, queue, unit + len(rows)))
            first += width
    return rows


def shares(dice: np.random.Generator, unit: int) -> list[Row]:
    """Halves and quarters of devices."""
    rows: list[Row] = []
    for node in range(NODES):
        for device in range(DEVICES):
            share = int(dice.choice([500, 250]))
            for _ in range(1000 // share):
                queue = int(dice.integers(LEAVES))
                rows.append((node, 1 << device, share, 1, 1, queue, unit + len(rows)))
    return rows


def gangs(dice: np.random.Generator, unit: int) -> list[Row]:
    """Units that lie on two neighbouring nodes, beside single devices."""
    rows: list[Row] = []
    count = 0
    for node in range(0, NODES, 2):
        for device in range(DEVICES):
            queue, spread = int(dice.integers(LEAVES)), dice.random() < 0.4
            rows.append((node, 1 << device, 1000, 2, 4, queue, unit + count))
            other = queue if spread else int(dice.integers(LEAVES))
            rows.append((node + 1, 1 << device, 1000, 2, 4, other, unit + count + (not spread)))
            count += 1 if spread else 2
    return rows


def large_situation(fill: FILL, claim: GangRequest, seed: int, keep: float) -> Situation:
    """A situation; leaves and the three queues above them keep about this part of what they hold.

    With ``keep`` 0 all may go.
    """
    dice = np.random.default_rng(seed)
    rows, free, host = _partly_free(dice, fill(dice, 0))
    units = max(row[-1] for row in rows) + 1
    victims = victims_of(
        rows, dice.integers(1, 1000, units).tolist(), dice.permutation(units).tolist()
    )
    held = np.bincount([row[5] for row in rows], [row[1].bit_count() * row[2] for row in rows], 15)
    held[LEAVES:] = held[:LEAVES].reshape(3, -1).sum(axis=1)
    excess = np.zeros((LEAVES + 3, 3), np.int64)
    excess[:, 0] = np.ceil(held * (1 - keep * dice.uniform(0.8, 1.2, LEAVES + 3)) / 1000) * 1000
    parent = np.append(np.repeat(np.arange(LEAVES, LEAVES + 3), LEAVES // 3), [-1, -1, -1])
    if keep == 0:
        excess[:] = NO_BOUND
    budgets = Budgets.of(Tree(parent), excess)
    eligible_nodes = EligibleNodes(
        dice.random(NODES) < 0.95, free, host, np.asarray(dice.permutation(NODES)),
    )  # fmt: skip
    return Situation(claim, eligible_nodes, victims, budgets)


def _partly_free(
    dice: np.random.Generator, rows: list[Row]
) -> tuple[list[Row], FreeDevices, Counts]:
    """End some of the tasks: the rest with units numbered anew, free devices, free hosts."""
    kept: list[Row] = []
    numbers: dict[int, int] = {}
    free, host = np.zeros((DEVICES, NODES), np.int16), np.full((2, NODES), 2, np.int64)
    for node, mask, share, cpu, memory, queue, unit in rows:
        if dice.random() < ENDED:
            host[:, node] += (cpu, memory)
            for device in range(DEVICES):
                free[device, node] += (mask >> device & 1) * share
        else:
            number = numbers.setdefault(unit, len(numbers))
            kept.append((node, mask, share, cpu, memory, queue, number))
    return kept, free, host
