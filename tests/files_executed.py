"""Counts the production files whose functions run for one start, one reclaim, and one job.

``python tests/files_executed.py [--list]`` prints the three numbers, and with ``--list`` the files.
They are how much code a reader has to follow to understand what happens. Imports do not count, only
functions that are called; the REST edge is left out of the third.

* start: one task on an idle cluster of one node, from its event to the plan.
* reclaim: 2 of 8 GPUs, which another queue uses over its quota.
* job: on one machine: submitted to the reconciler with a real ledger, started by an engine, run and
  ended.
"""

import argparse
import asyncio
import itertools
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from carrel_scheduler.core.decide import decide  # noqa: E402
from carrel_scheduler.core.plan import Plan  # noqa: E402
from carrel_scheduler.core.state import State  # noqa: E402
from carrel_scheduler.engines.external import NoExternalPods  # noqa: E402
from carrel_scheduler.ledger.open import open_ledger  # noqa: E402
from unit.core.situations import apply, node, queue, running, training  # noqa: E402
from unit.workloads.harness import SchedulerHarness  # noqa: E402

PRODUCTION = ("scheduler/", "extensions/", "hub/", "spawner/")


class Executed:
    """Records the files of the functions that are called while it is active.

    Threads that begin after it was made are included.
    """

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.active = False
        threading.setprofile(self._called)

    def __enter__(self) -> Self:
        """Begin to record."""
        self.active = True
        sys.setprofile(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop recording."""
        self.active = False
        sys.setprofile(None)
        threading.setprofile(None)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if not self.active or event != "call" or frame.f_code.co_name == "<module>":
            return
        with suppress(ValueError):
            name = str(Path(frame.f_code.co_filename).relative_to(ROOT))
            if name.startswith(PRODUCTION):
                self.files.add(name)


def one_start() -> set[str]:
    """Files executed for one start on an idle cluster."""
    state = State()
    apply(state, [node("n1", 8), queue("vision", 8)])
    decide(state, 1.0)
    with Executed() as executed:
        apply(state, [training("a", "vision")])
        plan = decide(state, 2.0)
        assert [binding.uid for binding in plan.bindings] == ["a"]
    return executed.files


def one_reclaim() -> set[str]:
    """Files executed for a reclaim of 2 GPUs of 8."""
    state = State()
    apply(state, [node("n1", 8), queue("vision", 4), queue("speech", 4)])
    for number in range(8):
        apply(state, running(training(f"over-{number}", "speech"), "n1", number))
    decide(state, 100.0)
    with Executed() as executed:
        apply(state, [training("claim", "vision", 2)])
        plan: Plan = decide(state, 101.0)
        assert len(plan.evictions) == 2, plan.evictions
    return executed.files


def one_job() -> set[str]:
    """Files executed for one job from its submission to its end."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_job(Path(folder)))


async def _job(folder: Path) -> set[str]:
    numbers = itertools.count(1)
    executed = Executed()
    ledger = await open_ledger(
        f"sqlite:///{folder}/ledger.sqlite", clock=lambda: 1.0, ids=lambda: f"id{next(numbers)}"
    )
    try:
        harness = SchedulerHarness(ledger, folder, external_pods=lambda _: NoExternalPods())
        await harness.recover()
        await harness.project("vision", 4)
        with executed:
            uid = await harness.submit("vision", "job")
            await harness.runs(uid)
            await harness.ends(uid)
            assert await harness.phase(uid) == "succeeded"
    finally:
        await ledger.close()
    return {file for file in executed.files if "/invariants/" not in file}


CASES: dict[str, Callable[[], set[str]]] = {
    "start": one_start,
    "reclaim": one_reclaim,
    "job": one_job,
}


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the files, too")
    given = parser.parse_args()
    for name, case in CASES.items():
        files = case()
        print(f"{name}: {len(files)} files")
        for file in sorted(files) if given.list else ():
            print(f"  {file}")


if __name__ == "__main__":
    main()
