"""Mutation testing of the core: puts faults into copies of it, one at a time.

    python tests/hunts/mutation.py --sample 150 --seed 7 [--module 'preemption/*'] [--json]

The tree is copied first (``--revision`` takes a commit instead), its tests are run once to learn
which of them runs which line, and then every mutant meets the tests of its line, the fastest
first. Ends with the share that was killed; the exit status is 1 below the goal. ``hunts.mutants``
says how.
"""

import argparse
import multiprocessing
import os
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from functools import partial, reduce
from operator import or_
from pathlib import Path

os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

from hunts.mutants.covering import Coverage
from hunts.mutants.judging import known
from hunts.mutants.making import Mutant
from hunts.mutants.sampling import sample
from hunts.mutants.sandbox import Sandbox, clone, make
from hunts.mutants.telling import Result, as_json, as_text
from hunts.mutants.trying import Outcome, attempt, learn

GOAL = 0.85


def main() -> int:
    """Copy, learn, try, tell."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        result = _hunt(Path(folder), options)
    print(as_json(result) if options.json else as_text(result))
    return 0 if result.share >= GOAL else 1


def _hunt(folder: Path, options: argparse.Namespace) -> Result:
    first = make(folder / "0", options.revision)
    mutants = sample(first.core, options.module, options.sample, options.seed)
    copies = [first, *(clone(first, folder / str(n)) for n in range(1, options.jobs))]
    coverage = _learn(copies)
    _say(f"{len(coverage.seconds)} tests pass, {len(coverage.failing)} fail without a fault")
    equivalents = known()
    tried = [one for one in mutants if one not in equivalents]
    outcomes = _outcomes(copies, coverage, tried, options.budget)
    pairs = list(zip(tried, outcomes, strict=True))
    return Result(pairs, len(mutants) - len(tried), coverage.failing)


def _learn(copies: list[Sandbox]) -> Coverage:
    """Run a part of the tests in each copy, in a process of its own."""
    with ProcessPoolExecutor(len(copies), multiprocessing.get_context("fork")) as pool:
        parts = pool.map(learn, copies, range(len(copies)), [len(copies)] * len(copies))
        return reduce(or_, parts)


def _outcomes(
    copies: list[Sandbox], coverage: Coverage, mutants: list[Mutant], budget: float
) -> list[Outcome]:
    """Outcomes in the order of the mutants; each copy has a process for every n-th of them."""
    stripes = [mutants[n :: len(copies)] for n in range(len(copies))]
    with ProcessPoolExecutor(len(copies), multiprocessing.get_context("fork")) as pool:
        work = partial(_try_all, coverage, budget)
        of_stripes = list(pool.map(work, copies, stripes))
    return [of_stripes[n % len(copies)][n // len(copies)] for n in range(len(mutants))]


def _try_all(
    coverage: Coverage, budget: float, copy: Sandbox, mutants: list[Mutant]
) -> list[Outcome]:
    outcomes = []
    for mutant in mutants:
        outcomes.append(attempt(copy, coverage, mutant, budget))
        _say(f"{mutant.module}:{mutant.line} {outcomes[-1]}: {mutant.after}")
    return outcomes


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sample", type=int, default=150, help="how many mutants")
    parser.add_argument("--seed", type=int, default=1, help="which ones")
    parser.add_argument("--module", default="*", metavar="PATTERN", help="such as 'preemption/*'")
    parser.add_argument("--revision", help="a commit; without it, the tree as it is")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--budget", type=float, default=120, help="seconds of tests for each")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
