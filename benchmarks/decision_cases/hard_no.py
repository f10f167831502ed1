"""The same gang where no legal set of victims suffices: how soon the core says no, and which no.

Three ways, each one step away from a yes: the nodes that could be cleared are one short; what the
departments may lose is one victim short; and a puzzle that every bound lets pass (queues in
triangles, two to a node, of which each may lose an odd number of nodes: half of it three times is
more than whole nodes allow), which only a search can refuse, so the answer is "not found".
"""

import random
from collections import Counter

from benchmarks.decision_cases import borrowed, reclaim
from benchmarks.decision_cases.loading import Listing
from benchmarks.decision_cases.timing import Times, figures, repeat
from benchmarks.report import Figure
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import QueueSet

PEER_S = {100: 50.8}
"""KAI, the same kind of gang that cannot be placed."""
GOALS_MS = {1000: 1.0}
SEARCH_GOALS_MS = {1000: 10.0}
Found = tuple[int, int, int]


def run(nodes: list[int], repeats: int) -> list[Figure]:
    """The figures, one size after the other."""
    rows: list[Figure] = []
    for size in nodes:
        for name, make in (("nodes one short", nodes_short), ("budgets one short", budgets_short)):
            rows += _figures(f"{size:,} nodes, {name}", make(size), repeats, GOALS_MS.get(size))
        goal = SEARCH_GOALS_MS.get(size)
        rows += _figures(f"{size:,} nodes, only in whole nodes", puzzle(size), repeats, goal)
        if size in PEER_S:
            slowest = max(one.value for one in rows if one.figure.startswith(f"{size:,}"))
            peer = PEER_S[size] * 1000 / slowest
            rows.append(Figure(f"{size:,} nodes: times faster than KAI", peer, "x", "-"))
    return rows


def nodes_short(nodes: int, seed: int = 1) -> borrowed.Claim:
    """A claim on nodes of which all but N/2 - 1 have a job that may not be stopped."""
    rng = random.Random(seed)
    closed = set(rng.sample(range(nodes), nodes - nodes // 2 + 1))
    owners = [[rng.randrange(borrowed.PROJECTS) for _ in range(8)] for _ in range(nodes)]
    held = Counter(project for row in owners for project in row)
    fixed = Counter(owners[number][0] for number in closed)
    kept = {p: min(held[p], fixed[p]) for p in range(borrowed.PROJECTS)}
    jobs, placed, saved = borrowed.filled(
        nodes,
        lambda n, d: f"project-{owners[n][d]:02}",
        rng,
        fixed=lambda number, device: device == 0 and number in closed,
    )
    queues = borrowed.department_tree(nodes, kept)
    machines = [borrowed.node(i) for i in range(nodes)]
    listing = Listing(machines, queues, (), (), jobs, placed, saved)
    return borrowed.Claim(listing, borrowed.gang(nodes))


def budgets_short(nodes: int, seed: int = 1) -> borrowed.Claim:
    """Departments may lose one job fewer than the gang needs; projects are guaranteed none."""
    rng = random.Random(seed)
    owners = [[rng.randrange(borrowed.PROJECTS) for _ in range(8)] for _ in range(nodes)]
    held = Counter(project % borrowed.DEPARTMENTS for row in owners for project in row)
    lose = nodes // 2 * 8 - 1
    guaranteed, left = {}, lose
    for number in range(borrowed.DEPARTMENTS):
        part = left // (borrowed.DEPARTMENTS - number)
        guaranteed[number] = held[number] - part
        left -= part
    jobs, placed, saved = borrowed.filled(nodes, lambda n, d: f"project-{owners[n][d]:02}", rng)
    nothing = dict.fromkeys(range(borrowed.PROJECTS), 0)
    queues = borrowed.department_tree(nodes, nothing, guaranteed)
    machines = [borrowed.node(i) for i in range(nodes)]
    listing = Listing(machines, queues, (), (), jobs, placed, saved)
    return borrowed.Claim(listing, borrowed.gang(nodes))


def puzzle(nodes: int, seed: int = 1) -> borrowed.Claim:
    """A claim on nodes with four jobs of each of two queues of a triangle of three.

    A queue may lose the jobs of an odd number b of nodes, so a triangle gives (3 b - 1) / 2 whole
    nodes at most, though 3 b / 2 by any sum; over all triangles the first sum falls short. The jobs
    are interactive, so none of them can be moved out of the way.
    """
    rng = random.Random(seed)
    triangles = min(20, max(6, nodes // 10))
    budgets = _odd_budgets(nodes // 2, triangles)
    pairs = [_pair(number, triangles) for number in range(nodes)]
    held = Counter(queue for pair in pairs for queue in pair)
    jobs, placed, saved = borrowed.filled(
        nodes, lambda n, d: _queue(pairs[n][d % 2]), rng, interactive=True
    )
    kept = {queue: 4 * (held[queue] - budgets[queue // 3]) for queue in sorted(held)}
    queues = [QueueSet("department", borrowed.quota(sum(kept.values())))]
    queues += [
        QueueSet(_queue(queue), borrowed.quota(gpus), parent="department")
        for queue, gpus in kept.items()
    ]
    claimed = borrowed.quota(nodes // 2 * 8)
    queues += [
        QueueSet("claiming", claimed),
        QueueSet(borrowed.CLAIMER, claimed, parent="claiming"),
    ]
    machines = [borrowed.node(i) for i in range(nodes)]
    listing = Listing(machines, queues, (), (), jobs, placed, saved)
    return borrowed.Claim(listing, borrowed.gang(nodes))


def _odd_budgets(wanted: int, triangles: int) -> list[int]:
    """Odd numbers whose sum b has 3 b / 2 >= wanted, and less than ``wanted`` in whole nodes."""
    total = -(-2 * wanted // 3)
    total += (total - triangles) % 2
    found = [1] * triangles
    for step in range((total - triangles) // 2):
        found[step % triangles] += 2
    assert (3 * total - triangles) // 2 < wanted <= 3 * total / 2
    return found


def _pair(number: int, triangles: int) -> tuple[int, int]:
    triangle, side = number % triangles, number // triangles % 3
    corners = [3 * triangle + corner for corner in range(3) if corner != side]
    return corners[0], corners[1]


def _queue(number: int) -> str:
    return f"project-{number:02}"


def _figures(label: str, claim: borrowed.Claim, repeats: int, goal: float | None) -> list[Figure]:
    measured, found = _times(claim, repeats)
    against = Figure(f"{label}: decided against", float(not any(found)), "", "= 1", not any(found))
    return [*figures(label, measured, goal), against]


def _times(claim: borrowed.Claim, repeats: int) -> tuple[Times, Found]:
    state = reclaim.prepared(claim)
    last = [(0, 0, 0)]

    def work() -> None:
        last[0] = reclaim.read(decide(state, borrowed.NOW))

    return repeat(lambda: reclaim.again(state, claim), work, repeats), last[0]
