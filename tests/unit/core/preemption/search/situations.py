"""Small random situations and their answers by looking at every set of victims."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.preemption.legality import Budgets
from carrel_scheduler.core.preemption.search.budgets import UnitBudgets
from carrel_scheduler.core.preemption.search.model import (
    Answer,
    Candidates,
    EligibleNodes,
    GangRequest,
    fitting_one,
    lay_out,
)
from carrel_scheduler.core.preemption.search.search import search
from carrel_scheduler.core.queues.rules import NO_BOUND, Tree

Set = frozenset[int]


@dataclass(frozen=True, slots=True)
class Victims(Candidates):
    """Candidates with what their queues lose.

    Attributes:
        queue: (V,) slot of the leaf queue; the same for all tasks of a unit.
        gpu: (V,) thousandths of GPUs that count for the queue.
    """

    queue: Counts
    gpu: Counts


@dataclass(frozen=True, slots=True)
class Situation:
    claim: GangRequest
    eligible_nodes: EligibleNodes
    victims: Victims
    budgets: Budgets

    def answer(self) -> Answer:
        """The answer of the search."""
        units = unit_budgets(self.victims, self.budgets)
        return search(self.claim, lay_out(self.eligible_nodes, self.victims, units))


def unit_budgets(victims: Victims, budgets: Budgets) -> UnitBudgets:
    """The budgets by units."""
    units = len(victims.cost)
    queue = np.zeros(units, np.int64)
    queue[victims.unit] = victims.queue
    gpu, cpu, memory = (
        np.bincount(victims.unit, weights=column, minlength=units).astype(np.int64)
        for column in (victims.gpu, victims.cpu_milli, victims.memory_mib)
    )
    return UnitBudgets(budgets, queue, (gpu, cpu, memory).__getitem__)


def victims_of(rows: list[tuple[int, int, int, int, int, int, int]], cost: list[int],
               order: list[int] | None = None) -> Victims:  # fmt: skip
    """Rows of (node, mask, share, cpu, memory, queue, unit)."""
    columns = np.array(rows, np.int64).reshape(-1, 7).T
    node, mask, share, cpu, memory, queue, unit = columns
    places = range(len(cost)) if order is None else order
    gpu = share * np.bitwise_count(mask.astype(np.uint64))
    return Victims(
        node, mask.astype(np.uint64), share, cpu, memory, unit,
        np.array(cost, np.int64), np.array(places, np.int64), queue=queue, gpu=gpu,
        alone=unit.tolist() == list(range(len(cost))),
    )  # fmt: skip


def free_nodes(devices: int, nodes: int, host: int = 0) -> EligibleNodes:
    """Nodes without a free device."""
    return EligibleNodes(
        np.ones(nodes, np.bool_), np.zeros((devices, nodes), np.int16),
        np.full((2, nodes), host, np.int64), np.arange(nodes),
    )  # fmt: skip


def flat(*excess: int) -> Budgets:
    """Queues without parents that exceed so many thousandths of a GPU; -1 for open ones."""
    table = np.zeros((len(excess), 3), np.int64)
    table[:, 0] = np.where(np.array(excess) < 0, NO_BOUND, excess)
    return Budgets.of(Tree(np.full(len(excess), -1)), table)


def random_situation(seed: int, *, spread: bool = True, nodes: int = 6) -> Situation:
    """Up to ``nodes`` nodes of 4 devices and 12 units, with everything that may occur."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(2, nodes + 1))
    devices = np.full((4, count), 1000)
    host = np.full((2, count), 16, np.int64)
    rows: list[tuple[int, int, int, int, int, int, int]] = []
    unit = 0
    for _ in range(60):
        if unit == 12:
            break
        parts: list[tuple[int, int, int, int, int, int, int]] = []
        queue = int(rng.integers(0, 4))
        kind, span = rng.random(), int(rng.integers(1, 4)) if spread and rng.random() < 0.25 else 1
        for node in rng.choice(count, min(span, count), replace=False).tolist():
            if kind < 0.15:
                held, share = [], 0
            elif kind < 0.45:
                share = int(rng.choice([250, 500, 300]))
                held = [d for d in range(4) if devices[d, node] >= share][:1]
            else:
                share, width = 1000, int(rng.choice([1, 1, 2, 4]))
                held = [d for d in range(4) if devices[d, node] == 1000][:width]
            cpu, memory = int(rng.integers(1, 5)), int(rng.integers(1, 5))
            if (kind >= 0.15 and not held) or (host[:, node] < (cpu, memory)).any():
                continue
            devices[held, node] -= share
            host[:, node] -= (cpu, memory)
            mask = sum(1 << d for d in held)
            parts.append((node, mask, share, cpu, memory, queue, unit))
        rows += parts
        unit += bool(parts)
    width = int(rng.choice([0, 1, 1, 2, 3, 4]))
    size = 1000 if rng.random() < 0.7 else int(rng.choice([250, 500, 700]))
    claim = GangRequest(
        int(rng.integers(1, 5)), width, size, int(rng.integers(0, 9)) if width else 5,
        int(rng.integers(0, 9)), int(rng.integers(1, 3)) if rng.random() < 0.2 else 0,
    )  # fmt: skip
    excess = np.zeros((6, 3), np.int64)
    excess[:, 0] = rng.choice(
        [0, 500, 1000, 2000, 4000, 8000], 6, p=[0.05, 0.1, 0.2, 0.2, 0.2, 0.25]
    )
    excess[:, 1] = rng.choice([0, 0, 3, 6], 6)
    excess[4:][rng.random(2) < 0.5] = NO_BOUND
    budgets = Budgets.of(Tree(np.array([4, 4, 5, 5, -1, -1])), excess)
    eligible_nodes = EligibleNodes(
        rng.random(count) < 0.9, devices.astype(np.int16), host, np.asarray(rng.permutation(count))
    )
    cost = rng.integers(0, 100, unit).tolist()
    victims = victims_of(rows, cost, rng.permutation(unit).tolist())
    return Situation(claim, eligible_nodes, victims, budgets)


def legal(situation: Situation, units: Set) -> bool:
    victims, budgets = situation.victims, situation.budgets
    for queue in range(len(budgets.tree.parent)):
        losses: dict[int, list[int]] = {}
        for row, unit in enumerate(victims.unit.tolist()):
            if unit in units and _below(budgets, int(victims.queue[row]), queue):
                held = int(victims.mask[row]).bit_count() * int(victims.share[row])
                loss = losses.setdefault(unit, [0, 0, 0])
                loss[0] += held
                loss[1] += int(victims.cpu_milli[row])
                loss[2] += int(victims.memory_mib[row])
        if budgets.open[queue] or not losses:
            continue
        if not any(
            sum(loss[r] for unit, loss in losses.items() if unit != last) < excess
            for last in losses
            for r, excess in enumerate(budgets.excess[queue].tolist())
            if excess > 0
        ):
            return False
    return True


def _below(budgets: Budgets, queue: int, top: int) -> bool:
    while queue >= 0:
        if queue == top:
            return True
        queue = int(budgets.tree.parent[queue])
    return False


def places(situation: Situation, units: Set) -> dict[int, int]:
    """Tasks that fit on every eligible node once the units are gone."""
    eligible_nodes, victims = situation.eligible_nodes, situation.victims
    devices, host = eligible_nodes.devices.astype(int).copy(), eligible_nodes.host.copy()
    for row, unit in enumerate(victims.unit.tolist()):
        if unit in units:
            node, mask = int(victims.node[row]), int(victims.mask[row])
            for d in range(len(devices)):
                devices[d, node] += (mask >> d & 1) * int(victims.share[row])
            host[:, node] += (victims.cpu_milli[row], victims.memory_mib[row])
    return {
        node: fitting_one(situation.claim, devices[:, node].tolist(), *host[:, node].tolist())
        for node in np.flatnonzero(eligible_nodes.eligible).tolist()
    }


def suffices(situation: Situation, units: Set) -> bool:
    return sum(places(situation, units).values()) >= situation.claim.tasks


def optimum(situation: Situation) -> int | None:
    """Least cost of a legal set that suffices, by looking at all of them."""
    cost = situation.victims.cost.tolist()
    best: int | None = None
    for size in range(len(cost) + 1):
        for chosen in combinations(range(len(cost)), size):
            price = sum(cost[unit] for unit in chosen)
            if best is not None and price >= best:
                continue
            units = frozenset(chosen)
            if suffices(situation, units) and legal(situation, units):
                best = price
    return best
