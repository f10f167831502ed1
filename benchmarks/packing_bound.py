"""How much of the GPUs any policy can have allocated before it rejects a pod: a linear program.

Pods of the trace's mix arrive as a fluid; CPU and memory are ignored. A node of G devices is split
into blocks for pods of several whole devices and single devices; a single device holds one whole
pod or a pattern of shares. Patterns of shares are generated as they are needed: the most valuable
pattern at the current dual prices is an integer knapsack of 1000 thousandths. The program is
solved by HiGHS through SciPy.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import linprog

from benchmarks.openb import MODEL, gpu_milli
from carrel_scheduler.decision.events import NodeSet
from carrel_scheduler.decision.requests import Request
from carrel_scheduler.decision.resources import MILLI

Size = tuple[int, int]
"""Whole devices and thousandths of a share; one of them is 0."""
Spec = frozenset[str] | None
Pattern = tuple[tuple[Size, int], ...]
IMPROVES = 1e-7


@dataclass
class _Program:
    """Rows named by what they balance; columns as lists of (row, factor)."""

    rows: dict[object, int] = field(default_factory=dict)
    columns: list[list[tuple[int, float]]] = field(default_factory=list)
    bounds: dict[int, float] = field(default_factory=dict)

    def row(self, name: object, at_most: float = 0.0) -> int:
        """The row of a name; its sum is at most ``at_most``."""
        number = self.rows.setdefault(name, len(self.rows))
        self.bounds.setdefault(number, at_most)
        return number

    def add(self, entries: list[tuple[int, float]]) -> None:
        """A column."""
        self.columns.append(entries)

    def solve(self) -> tuple[float, dict[object, float]]:
        """The largest value of column 0, and the dual price of each row."""
        matrix = np.zeros((len(self.rows), len(self.columns)))
        for number, column in enumerate(self.columns):
            for row, factor in column:
                matrix[row, number] += factor
        limits = np.array([self.bounds[row] for row in range(len(self.rows))])
        objective = np.zeros(len(self.columns))
        objective[0] = -1
        found = linprog(objective, A_ub=matrix, b_ub=limits, method="highs")
        if found.status != 0 or found.x is None:
            raise RuntimeError(f"the bound was not found: {found.message}")
        prices = -found.ineqlin.marginals
        return float(found.x[0]), {name: float(prices[r]) for name, r in self.rows.items()}


def bound(nodes: list[NodeSet], pods: list[Request]) -> float:
    """Percent of the GPUs that can be allocated at best when the first pod is rejected."""
    demand = Counter((_size(pod), _spec(pod)) for pod in pods if gpu_milli(pod))
    mean = sum(gpu_milli(pod) for pod in pods)
    shares = sorted({size for size, _ in demand if size[1]}, key=lambda size: -size[1])
    blocks = sorted({size[0] for size, _ in demand if size[0] > 1}, reverse=True)
    groups = Counter((node.devices, dict(node.labels)[MODEL]) for node in nodes)
    models = sorted({model for _, model in groups})
    program = _Program()
    program.add([(program.row(("mix", *one)), float(count)) for one, count in demand.items()])
    for size, spec in demand:
        for model in models:
            if spec is None or model in spec:
                served = program.row(("supply", size, model))
                program.add([(program.row(("mix", size, spec)), -1.0), (served, 1.0)])
    for (devices, model), count in groups.items():
        limit = program.row(("nodes", devices, model), float(count))
        for split in _splits(devices, blocks):
            column = [(limit, 1.0)]
            for block, times in split.items():
                column.append((program.row(("supply", (block, 0), model)), -float(times)))
            single = devices - sum(block * times for block, times in split.items())
            program.add([*column, (program.row(("single", model)), -float(single))])
    patterns: set[tuple[str, Pattern]] = set()
    for model in models:
        _add_pattern(program, model, (((1, 0), 1),))
        for size in shares:
            _add_pattern(program, model, ((size, MILLI // size[1]),))
    while True:
        most, prices = program.solve()
        new = _better_patterns(models, shares, prices) - patterns
        if not new:
            break
        patterns |= new
        for model, pattern in sorted(new):
            _add_pattern(program, model, pattern)
    capacity = sum(node.devices for node in nodes) * MILLI
    return 100 * most * mean / capacity


def _size(pod: Request) -> Size:
    return (pod.gpus, pod.share_milli)


def _spec(pod: Request) -> Spec:
    return pod.where.labels[0][1] if pod.where.labels else None


def _splits(devices: int, blocks: list[int]) -> list[dict[int, int]]:
    """All ways to cut blocks out of a node."""
    if not blocks:
        return [{}]
    first, rest = blocks[0], blocks[1:]
    return [
        {first: times, **split} if times else split
        for times in range(devices // first + 1)
        for split in _splits(devices - first * times, rest)
    ]


def _add_pattern(program: _Program, model: str, pattern: Pattern) -> None:
    column = [(program.row(("single", model)), 1.0)]
    for size, times in pattern:
        column.append((program.row(("supply", size, model)), -float(times)))
    program.add(column)


def _better_patterns(
    models: list[str], shares: list[Size], prices: dict[object, float]
) -> set[tuple[str, Pattern]]:
    """Of each model the pattern of shares that is worth more than a device costs, if any."""
    found = set()
    for model in models:
        worth = [prices.get(("supply", size, model), 0.0) for size in shares]
        value, pattern = _knapsack(shares, worth)
        if value > prices.get(("single", model), 0.0) + IMPROVES:
            found.add((model, pattern))
    return found


def _knapsack(shares: list[Size], worth: list[float]) -> tuple[float, Pattern]:
    """The most valuable multiset of shares within one device."""
    best = np.zeros(MILLI + 1)
    last = np.full(MILLI + 1, -1)
    for room in range(1, MILLI + 1):
        best[room], last[room] = best[room - 1], -1
        for number, (_, share) in enumerate(shares):
            if share <= room and best[room - share] + worth[number] > best[room]:
                best[room], last[room] = best[room - share] + worth[number], number
    times: dict[Size, int] = defaultdict(int)
    room = MILLI
    while room > 0:
        if last[room] < 0:
            room -= 1
            continue
        size = shares[int(last[room])]
        times[size] += 1
        room -= size[1]
    return float(best[MILLI]), tuple(sorted(times.items()))
