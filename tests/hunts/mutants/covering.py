"""Coverage of tests: the lines that each runs and its time, from one run of all of them.

Tests that fail without any fault are left out, and named. A line that is run while its module is
imported belongs to every test of the module.
"""

import pickle
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import coverage as tracing
import pytest

from hunts.mutants.sandbox import Sandbox


@dataclass(frozen=True, slots=True)
class Chosen:
    """Tests in the order in which they are run, and the seconds they take together."""

    tests: list[str]
    seconds: float


@dataclass(slots=True)
class Coverage:
    """The result of a run of tests; seconds are the processor's."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[int, set[str]]] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)

    def __or__(self, other: "Coverage") -> "Coverage":
        """The joined results of two runs of different tests."""
        together = Coverage(self.seconds | other.seconds, {}, [*self.failing, *other.failing])
        for one in (self, other):
            for module, by_line in one.lines.items():
                known = together.lines.setdefault(module, {})
                for line, tests in by_line.items():
                    known[line] = known.get(line, set()) | tests
        return together

    def choose(self, module: str, line: int, budget: float) -> Chosen:
        """Tests of this line, the fastest first, as many as fit into the seconds of the budget.

        Behind them the others of the module, since what a cache kept from running a second time is
        not seen as run by a test; and all tests where none runs the line, but the import may.
        """
        by_line = self.lines.get(module, {})
        here = by_line.get(line, set()) & self.seconds.keys()
        others = (set[str]().union(*by_line.values()) & self.seconds.keys()) - here
        rest = set[str]() if here or not by_line else self.seconds.keys() - others
        tests, total = list[str](), 0.0
        for test in [each for some in (here, others, rest) for each in self._fastest_first(some)]:
            if total + self.seconds[test] <= budget:
                tests.append(test)
                total += self.seconds[test]
        return Chosen(tests, total)

    def _fastest_first(self, tests: Iterable[str]) -> list[str]:
        return sorted(tests, key=lambda test: (self.seconds[test], test))


class Recorder:
    """A plugin of pytest that notes them; to be made before the core is imported.

    What several tests share is set up in the first one only, but whoever runs one of them alone
    waits for it: its seconds are added to each.
    """

    def __init__(self, sandbox: Sandbox, path: Path) -> None:
        self._core, self._path = sandbox.core, path
        self._found = Coverage()
        self._shared: defaultdict[str, float] = defaultdict(float)
        self._uses: dict[str, list[str]] = {}
        self._tracer = tracing.Coverage(data_file=None, include=[str(sandbox.core / "*")])
        self._tracer.start()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._tracer.switch_context(item.nodeid)
        begin, shared = time.process_time(), sum(self._shared.values())
        yield
        shared = sum(self._shared.values()) - shared
        self._found.seconds[item.nodeid] = time.process_time() - begin - shared
        self._uses[item.nodeid] = list(getattr(item, "fixturenames", ()))
        self._tracer.switch_context("")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        begin = time.process_time()
        yield
        if fixturedef.scope != "function":
            self._shared[fixturedef.argname] += time.process_time() - begin

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._found.failing.append(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        self._tracer.stop()
        for test, fixtures in self._uses.items():
            self._found.seconds[test] += sum(self._shared.get(name, 0.0) for name in fixtures)
        for test in self._found.failing:
            self._found.seconds.pop(test, None)
        self._found.lines = dict(self._lines())
        self._path.write_bytes(pickle.dumps(self._found))

    def _lines(self) -> Iterator[tuple[str, dict[int, set[str]]]]:
        data = self._tracer.get_data()
        for path in data.measured_files():
            by_line = data.contexts_by_lineno(path).items()
            module = Path(path).relative_to(self._core).as_posix()
            yield module, {line: {one for one in tests if one} for line, tests in by_line}
