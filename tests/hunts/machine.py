"""Hunt in the core in many long random stories, with every invariant checked after every step.

    python tests/hunts/machine.py --runs 5000 --steps 50 [--groups]

With ``--groups`` nodes are in groups, and queues have quotas and limits there.
Each run has a seed, so a failure is told again by ``--first SEED --runs 1``. Ends with a line that
counts the failures; the exit status is 1 when there are any.
"""

import argparse
import sys
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from unit.core.runs import Violated
from unit.core.stories import tell


def main() -> int:
    """Run, and print each kind of failure with the first seed that shows it."""
    options = _options()
    kinds: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.runs):
        try:
            tell(seed, options.steps, grouped=options.groups)
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is what is hunted
            kind = _kind(error)
            if kind not in kinds:
                print(f"seed {seed}: {error}"[:2000], flush=True)
            kinds[kind] += 1
    for kind, count in kinds.most_common():
        print(f"{count:6} {kind}")
    print(f"{options.runs} runs of {options.steps} steps, {sum(kinds.values())} failed")
    return 1 if kinds else 0


def _kind(error: Exception) -> str:
    """The invariant, or where the error came from."""
    if isinstance(error, Violated):
        return str(error).partition(":")[0]
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {last.name}, line {last.lineno}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--groups", action="store_true", help="with groups of nodes")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
