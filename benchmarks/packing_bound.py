"""An upper bound of the GPUs that are allocated when the first GPU pod is rejected.

A linear program tells how much of a list of pods fits at best, as a fluid of the list's mix: GPUs,
CPU and memory of all nodes of a kind together, models, and borders of nodes and devices for GPUs.
A node of G devices is split into blocks for pods of several whole devices and single devices; a
single device holds one whole pod or a pattern of shares. Patterns are generated as they are needed:
the most valuable one at the current dual prices is an integer knapsack of 1000 thousandths. The
longest beginning of the arrivals that fits bounds every policy, also one that knows the future;
pods without GPUs may be rejected, so they are left out. Solved by HiGHS through SciPy.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from benchmarks.openb import MODEL, gpu_milli
from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import MILLI

Size = tuple[int, int]
"""Whole devices and thousandths of a share; one of them is 0."""
Pattern = tuple[tuple[Size, int], ...]
Column = list[tuple[int, float]]
"""Pairs of row and factor."""

IMPROVES = 1e-7
FINE = 0.0005
"""The bound is found to this part of the cluster."""


class Kind(NamedTuple):
    """Equal nodes."""

    devices: int
    model: str
    cpu_milli: int
    memory_mib: int

    def may(self, pod: Request) -> bool:
        """Whether a pod fits on an empty node."""
        models = pod.where.labels[0][1] if pod.where.labels else {self.model}
        return (
            self.model in models
            and pod.gpus <= self.devices
            and pod.cpu_milli <= self.cpu_milli
            and pod.memory_mib <= self.memory_mib
        )


class Bound:
    """The program for one cluster; patterns found for one list of pods serve the next."""

    def __init__(self, nodes: list[NodeSet]) -> None:
        self._kinds = Counter(
            Kind(node.devices, dict(node.labels)[MODEL], node.cpu_milli, node.memory_mib)
            for node in nodes
        )
        self._capacity = sum(node.devices for node in nodes) * MILLI
        self._patterns: dict[tuple[Kind, Pattern], None] = {}

    def first_rejection(self, pods: Sequence[Request]) -> float:
        """Percent of the GPUs that can be allocated at most when the first GPU pod is rejected.

        Args:
            pods: in the order of arrival.
        """
        wanted = [pod for pod in pods if gpu_milli(pod)]
        demand = list(accumulate(map(gpu_milli, wanted)))
        fits, too_many, length = 0, len(wanted), len(wanted)
        while True:
            part = self.part(wanted[:length])
            if part >= 1:
                fits = length
                if fits == len(wanted):
                    return 100 * demand[-1] / self._capacity
            else:
                too_many = length
            least, most = (demand[n - 1] if n else 0 for n in (fits, too_many))
            if too_many - fits <= 1 or most - least <= FINE * self._capacity:
                return 100 * demand[too_many - 1] / self._capacity
            goal = part * demand[length - 1]
            if not least < goal < most:
                goal = (least + most) / 2
            length = int(np.searchsorted(demand, goal + FINE * self._capacity / 2))
            length = min(max(length, fits + 1), too_many - 1)

    def part(self, pods: Sequence[Request]) -> float:
        """The largest multiple of this mix of pods that fits."""
        counts = Counter(pods)
        shares = sorted({_size(pod) for pod in counts if pod.share_milli}, reverse=True)
        simple: list[Pattern] = [(((1, 0), 1),), *(((one, MILLI // one[1]),) for one in shares)]
        for kind in self._kinds:
            self._patterns.update(((kind, pattern), None) for pattern in simple)
        while True:
            program = _Program(self._kinds, counts, list(self._patterns))
            most, prices = program.solve()
            before = len(self._patterns)
            for kind in self._kinds:
                worth = [prices.get(("supply", one, kind), 0.0) for one in shares]
                value, pattern = _knapsack(shares, worth)
                if value > prices.get(("single", kind), 0.0) + IMPROVES:
                    self._patterns.setdefault((kind, pattern))
            if len(self._patterns) == before:
                return most


class _Program:
    """Rows named by what they balance; columns as lists of (row, factor)."""

    def __init__(
        self,
        kinds: Counter[Kind],
        pods: Counter[Request],
        patterns: list[tuple[Kind, Pattern]],
    ) -> None:
        self._rows: dict[object, int] = {}
        self._limits: list[float] = []
        self._columns: list[Column] = []
        self._columns.append([(self._row(pod), float(count)) for pod, count in pods.items()])
        blocks = sorted({pod.gpus for pod in pods if pod.gpus > 1}, reverse=True)
        for kind, count in kinds.items():
            self._add_nodes(kind, count, blocks)
            for pod in pods:
                if kind.may(pod):
                    self._add_pods(kind, count, pod)
        sizes = {_size(pod) for pod in pods} | {(1, 0)}
        for kind, pattern in patterns:
            if all(size in sizes for size, _ in pattern):
                supply = [(self._row(("supply", one, kind)), -float(n)) for one, n in pattern]
                self._columns.append([(self._row(("single", kind)), 1.0), *supply])

    def solve(self) -> tuple[float, dict[object, float]]:
        """The largest value of column 0, and the dual price of each row."""
        entries = [
            (row, number, factor)
            for number, column in enumerate(self._columns)
            for row, factor in column
        ]
        rows, numbers, factors = zip(*entries, strict=True)
        shape = (len(self._rows), len(self._columns))
        # the stubs of linprog know dense matrices only
        matrix: Any = coo_array((factors, (rows, numbers)), shape=shape).tocsr()
        objective = np.zeros(len(self._columns))
        objective[0] = -1
        found = linprog(objective, A_ub=matrix, b_ub=np.array(self._limits), method="highs")
        if found.status != 0 or found.x is None:
            raise RuntimeError(f"the bound was not found: {found.message}")
        prices = -found.ineqlin.marginals
        return float(found.x[0]), {name: float(prices[r]) for name, r in self._rows.items()}

    def _row(self, name: object, at_most: float = 0.0) -> int:
        """The row of a name; its sum is at most ``at_most``."""
        number = self._rows.get(name)
        if number is None:
            number = self._rows[name] = len(self._rows)
            self._limits.append(at_most)
        return number

    def _add_nodes(self, kind: Kind, count: int, blocks: list[int]) -> None:
        """Add variables for the ways to cut blocks out of a node of a kind."""
        limit = self._row(("nodes", kind), float(count))
        for split in _splits(kind.devices, blocks):
            column = [(limit, 1.0)]
            for block, times in split.items():
                column.append((self._row(("supply", (block, 0), kind)), -float(times)))
            single = kind.devices - sum(block * times for block, times in split.items())
            column.append((self._row(("single", kind)), -float(single)))
            self._columns.append(column)

    def _add_pods(self, kind: Kind, count: int, pod: Request) -> None:
        """Pods on nodes of a kind."""
        self._columns.append(
            [
                (self._row(pod), -1.0),
                (self._row(("supply", _size(pod), kind)), 1.0),
                (self._row(("cpu", kind), float(count * kind.cpu_milli)), float(pod.cpu_milli)),
                (
                    self._row(("memory", kind), float(count * kind.memory_mib)),
                    float(pod.memory_mib),
                ),
            ]
        )


def _size(pod: Request) -> Size:
    return (pod.gpus, pod.share_milli)


def _splits(devices: int, blocks: list[int]) -> list[dict[int, int]]:
    """The ways to cut blocks out of a node."""
    if not blocks:
        return [{}]
    first, rest = blocks[0], blocks[1:]
    return [
        {first: times, **split} if times else split
        for times in range(devices // first + 1)
        for split in _splits(devices - first * times, rest)
    ]


def _knapsack(shares: list[Size], worth: list[float]) -> tuple[float, Pattern]:
    """The most valuable multiset of shares within one device."""
    step = int(np.gcd.reduce([share for _, share in shares] or [MILLI]))
    room = MILLI // step
    best, last = [0.0] * (room + 1), [-1] * (room + 1)
    useful = [(n, shares[n][1] // step, value) for n, value in enumerate(worth) if value > 0]
    for used in range(1, room + 1):
        best[used] = best[used - 1]
        for number, taken, value in useful:
            if taken <= used and best[used - taken] + value > best[used]:
                best[used], last[used] = best[used - taken] + value, number
    times: dict[Size, int] = defaultdict(int)
    while room > 0:
        if last[room] < 0:
            room -= 1
            continue
        size = shares[last[room]]
        times[size] += 1
        room -= size[1] // step
    return best[-1], tuple(sorted(times.items()))
