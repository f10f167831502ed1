"""Hunt for faults of GPUs in many random stories: ``python tests/hunts/gpu_faults.py --runs 500``.

Each is a number; ``tests/unit/gpu_faults`` tells the first of them. What fails is printed with its
number, and the program then ends with 1.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from unit.gpu_faults.story import COUNT, FaultyHarness, Story
from unit.workloads.conftest import ledger_in, opened


async def tell(seed: int, steps: int, empty: Path) -> Story:
    """Run one story. Raises what it finds wrong, with what had happened."""
    with tempfile.TemporaryDirectory() as folder:
        async with opened(empty, Path(folder), COUNT, FaultyHarness) as harness:
            assert isinstance(harness, FaultyHarness)
            story = Story(harness, seed)
            try:
                await story.play(steps)
            except BaseException as error:
                error.add_note(", ".join(story.told))
                raise
            return story


async def make_empty(file: Path) -> None:
    """A ledger that holds nothing."""
    await (await ledger_in(file)).close()


def main() -> int:
    """Tell them all."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--runs", type=int, default=500)
    asked.add_argument("--first", type=int, default=0)
    asked.add_argument("--steps", type=int, default=60)
    given = asked.parse_args()
    logging.disable(logging.CRITICAL)
    failed, happened = 0, Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "empty.sqlite"
        asyncio.run(make_empty(empty))
        for seed in range(given.first, given.first + given.runs):
            try:
                happened.update(asyncio.run(tell(seed, given.steps, empty)).told)
            except Exception as error:  # noqa: BLE001 - the next one is told
                failed += 1
                print(f"story {seed}: {error!r}: {getattr(error, '__notes__', '')}", flush=True)
    print(", ".join(f"{count} {name}" for name, count in sorted(happened.items())))
    print(f"{given.runs} stories, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
