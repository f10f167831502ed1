"""The core against the optimum, on clusters small enough to know it."""

import argparse

from benchmarks import oracle_packing, oracle_victims
from benchmarks.report import Figure, median, show

NEAR = 1.05
PACKING_GOAL, VICTIMS_GOAL = 0.95, 0.95


def packing(cases: int) -> list[Figure]:
    """GPUs served over the most that can be served."""
    ratios = [oracle_packing.ratio(seed) for seed in range(cases)]
    middle = median(ratios)
    goal = f">= {100 * PACKING_GOAL:g}"
    return [
        Figure("packing, of the optimum: median", 100 * middle, "%", goal, middle >= PACKING_GOAL),
        Figure("packing, of the optimum: mean", 100 * sum(ratios) / len(ratios), "%", "-"),
        Figure("packing, of the optimum: worst", 100 * min(ratios), "%", "-"),
    ]


def victims(cases: int) -> list[Figure]:
    """Lost work over the least that any allowed set loses."""
    ratios, missed, wrong = victim_ratios(range(cases))
    total = len(ratios) + missed
    near = sum(ratio <= NEAR for ratio in ratios) / max(1, total)
    goal = f">= {100 * VICTIMS_GOAL:g}"
    return [
        Figure("victims within 5 % of the least lost", 100 * near, "%", goal, near >= VICTIMS_GOAL),
        Figure("lost over the least: worst", max(ratios, default=1.0), "x", "-"),
        Figure("cases with an answer that was not found", missed, f"of {total}", "-"),
        Figure("sets that the rules do not allow", wrong, "cases", "= 0", wrong == 0),
    ]


def victim_ratios(seeds: range) -> tuple[list[float], int, int]:
    """Lost over least of each case that needs victims; answers missed; sets not allowed.

    Where somebody is moved too, there may be an answer although no set by itself suffices.
    """
    ratios: list[float] = []
    missed = wrong = 0
    for seed in seeds:
        case = oracle_victims.random_case(seed)
        best, found = oracle_victims.least(case), oracle_victims.decided(case)
        if found is not None:
            wrong += not oracle_victims.is_allowed(case, found)
        if best is not None and best[2]:
            missed += found is None
            if found is not None:
                ratios.append(oracle_victims.ratio(oracle_victims.cost(case, found.stopped), best))
    return ratios, missed, wrong


def main() -> None:
    """Run both and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.oracle", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--json", action="store_true", help="end with a line for machines")
    args = parser.parse_args()
    rows = [*packing(args.cases), *victims(args.cases)]
    show("The core against the optimum", rows, as_json=args.json)


if __name__ == "__main__":
    main()
