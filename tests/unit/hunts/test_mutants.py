"""Mutation testing itself: where faults go, which are drawn, which tests meet them."""

from pathlib import Path

import pytest

from hunts.mutants.covering import Coverage
from hunts.mutants.judging import known
from hunts.mutants.making import Mutant, sites
from hunts.mutants.sampling import sample
from hunts.mutants.sandbox import CORE, REPOSITORY
from hunts.mutants.telling import Result, as_text
from hunts.mutants.trying import Outcome

SOURCE = '''
from dataclasses import dataclass
if TYPE_CHECKING:
    import thing
Pair = tuple[int, int] | None

@dataclass(frozen=True)
class Thing:
    size: int | None = None

    def grown(self, by: int | None, most: "int | str" = 8) -> int | None:
        """Not 1 + 1."""
        return min(self.size + by, most)


def pairs(a: list[int], b: list[int]) -> list[bool]:
    return [x < y for x, y in zip(a, b, strict=True)]
'''


@pytest.fixture
def core(tmp_path: Path) -> Path:
    (tmp_path / "thing.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "empty.py").write_text("", encoding="utf-8")
    return tmp_path


def test_declarations_are_left_alone(core: Path) -> None:
    lines = SOURCE.splitlines()
    touched = {lines[site.line - 1][site.column :][:1] for site in sites(core, "thing.py")}
    assert touched == {"8", "+", "<"}


def test_faults_change_one_line_and_are_the_same_for_a_seed(core: Path) -> None:
    drawn = sample(core, "*", 100, seed=3)
    assert [one.line for one in drawn] == sorted(one.line for one in drawn)
    assert len(drawn) == 3
    assert drawn == sample(core, "*", 100, seed=3)
    assert len(sample(core, "thing", 2, seed=3)) == 2
    assert sample(core, "other/*", 2, seed=3) == []
    for one in drawn:
        assert one.before != one.after
        assert one.after in one.source(SOURCE)
        compile(one.source(SOURCE), "thing", "exec")


def test_tests_of_the_line_come_first_then_those_of_the_module() -> None:
    coverage = Coverage(
        seconds={"slow": 5.0, "quick": 1.0, "beside": 0.5, "long": 90.0},
        lines={"m.py": {1: {"slow", "quick", "long", "failing"}, 2: {"beside"}, 3: set()}},
    )
    assert coverage.choose("m.py", 1, 10).tests == ["quick", "slow", "beside"]
    assert coverage.choose("m.py", 2, 2).tests == ["beside", "quick"]
    assert coverage.choose("m.py", 3, 1).tests == ["beside"]
    coverage.lines["import.py"] = {1: set()}
    assert coverage.choose("import.py", 1, 10).tests == ["beside", "quick", "slow"]
    assert coverage.choose("other.py", 1, 10).tests == []
    more = Coverage({"last": 2.0}, {"m.py": {1: {"last"}}, "other.py": {1: {"last"}}}, ["failing"])
    both = coverage | more
    assert both.choose("m.py", 1, 10).tests == ["quick", "last", "slow", "beside"]
    assert both.choose("other.py", 1, 10).tests == ["last"]
    assert both.failing == ["failing"]


def test_the_figure_counts_endless_loops_as_killed() -> None:
    one = Mutant("m.py", 1, "op", 0, "a < b", "a <= b")
    tried = [(one, outcome) for outcome in Outcome]
    text = as_text(Result(tried, equivalent=2, failing=["some test"]))
    assert "2 of 4 mutants killed (50.0%), 2 equivalent ones left out" in text
    assert text.count("  - a < b\n  + a <= b") == 2
    assert "left out, since it fails without a fault: some test" in text


def test_every_equivalent_mutant_is_still_there_and_has_a_reason() -> None:
    for (module, before, after), reason in known().reasons.items():
        lines = [line.strip() for line in (REPOSITORY / CORE / module).read_text().splitlines()]
        assert before in lines, f"{module}: {before}"
        assert after != before
        assert len(reason) > 10
