"""The tests of one mutant, in a process of its own that starts with the libraries loaded.

Time is the processor's, so that a busy machine does not time mutants out. A mutant lives only if
every test that was chosen passes.
"""

import os
import pickle
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import hypothesis
import numpy as np  # noqa: F401 - children start with it loaded
import pytest
import scipy.optimize  # noqa: F401 - children start with it loaded

from hunts.mutants.covering import Chosen, Coverage, Recorder
from hunts.mutants.making import Mutant
from hunts.mutants.sandbox import SCENARIOS, Sandbox

SLACK_SECONDS, SLACK_FACTOR, WALL_FACTOR = 15, 4, 10
MEMORY_BYTES = 6 << 30
LONGEST_SECONDS = 600


class Outcome(StrEnum):
    """The outcome of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    TIMED_OUT = "timed out"
    UNTESTED = "untested"
    """No test runs the line; counts as survived."""


def attempt(sandbox: Sandbox, coverage: Coverage, mutant: Mutant, budget: float) -> Outcome:
    """Put the fault in, run tests until one fails, take it out."""
    chosen = coverage.choose(mutant.module, mutant.line, budget)
    if not chosen.tests:
        return Outcome.UNTESTED
    path = sandbox.core / mutant.module
    original = path.read_text(encoding="utf-8")
    path.write_text(mutant.source(original), encoding="utf-8")
    try:
        return _outcome(in_child(sandbox, chosen.seconds, lambda: _run(chosen)))
    finally:
        path.write_text(original, encoding="utf-8")


def learn(sandbox: Sandbox, part: int = 0, parts: int = 1) -> Coverage:
    """Run every ``parts``-th file of tests once, without a fault."""
    path = sandbox.root / "coverage"
    wanted = sandbox.tests()[part::parts]
    status = in_child(sandbox, LONGEST_SECONDS, lambda: run_pytest(wanted, Recorder(sandbox, path)))
    coverage: Coverage = pickle.loads(path.read_bytes()) if path.exists() else Coverage()
    if not coverage.seconds:
        said = (sandbox.root / "output").read_text(encoding="utf-8")
        raise RuntimeError(f"the tests do not run without a fault (status {status}):\n{said}")
    return coverage


def in_child(sandbox: Sandbox, seconds: float, work: Callable[[], int]) -> int:
    """Run ``work`` in a fork that imports from the sandbox; returns the status of ``os.waitpid``.

    ``seconds`` of the processor are what it should take.
    """
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    status = 2
    try:
        limit = int(SLACK_SECONDS + SLACK_FACTOR * seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        signal.alarm(limit * WALL_FACTOR)
        _print_into(sandbox.root / "output")
        os.chdir(sandbox.root)
        os.environ["PYTHONPATH"] = str(sandbox.root / "scheduler")
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        os.environ.setdefault("CARREL_CONFORMANCE", str(SCENARIOS))
        sandbox.enter()
        status = work()
    except BaseException:  # noqa: BLE001 - whatever a mutant raises, the fork ends here
        traceback.print_exc()
    finally:
        os._exit(status)


def run_pytest(arguments: list[str], plugin: object) -> int:
    """Run tests in this process; examples are not made smaller, since nobody reads them."""
    hypothesis.settings.register_profile(
        "mutation",
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        database=None,
        derandomize=True,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("mutation")
    always = ["-c", "pytest.ini", "-q", "-p", "no:cacheprovider", "--tb=line"]
    return int(pytest.main([*always, *arguments], plugins=[plugin]))


class _Only:
    """A plugin of pytest that leaves the chosen tests, in the chosen order."""

    def __init__(self, chosen: Chosen) -> None:
        self._place = {test: place for place, test in enumerate(chosen.tests)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._place]
        items.sort(key=lambda item: self._place[item.nodeid])


def _run(chosen: Chosen) -> int:
    files = sorted({test.partition("::")[0] for test in chosen.tests})
    return run_pytest(["-x", *files], _Only(chosen))


def _outcome(status: int) -> Outcome:
    if os.WIFSIGNALED(status):
        late = os.WTERMSIG(status) in {signal.SIGXCPU, signal.SIGALRM}
        return Outcome.TIMED_OUT if late else Outcome.KILLED
    code = os.WEXITSTATUS(status)
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise RuntimeError("the chosen tests are gone from the copy")
    return Outcome.SURVIVED if code == pytest.ExitCode.OK else Outcome.KILLED


def _print_into(path: Path) -> None:
    """Let what is printed replace what the process before it left there."""
    output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for standard in (1, 2):
        os.dup2(output, standard)
