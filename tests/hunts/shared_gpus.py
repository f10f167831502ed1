"""Hunt for faults of shared GPUs: ``python tests/hunts/shared_gpus.py --runs 500``.

Each is a number; `tests/unit/shared_gpus` tells the first of them. What fails is printed with its
number, and the program then ends with 1.
"""

import argparse
import logging
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from unit.shared_gpus.sharing import Story
from unit.shared_gpus.virtual_loop import in_virtual_time


def main() -> int:
    """Tell them all."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--runs", type=int, default=500, help="of each of the two sorts")
    asked.add_argument("--first", type=int, default=0)
    asked.add_argument("--steps", type=int, default=80)
    given = asked.parse_args()
    logging.disable(logging.CRITICAL)
    failed = ran = refused = 0
    for forced in (False, True):
        for seed in range(given.first, given.first + given.runs):
            story = Story(seed, forced=forced)
            try:
                in_virtual_time(partial(story.play, given.steps))
            except Exception as error:  # noqa: BLE001 - the next one is told
                failed += 1
                print(f"story {seed}{' (by force)' if forced else ''}: {error!r}")
            ran += story.ran
            refused += len(story.refused)
    print(f"{2 * given.runs} stories, {ran} pods ran, {refused} refused, {failed} stories failed")
    return 1 if failed or refused else 0


if __name__ == "__main__":
    sys.exit(main())
