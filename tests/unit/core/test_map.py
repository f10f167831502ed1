"""The page about the core names every folder of it, so that a newcomer finds each."""

import re
from pathlib import Path

import carrel_scheduler.core

ROOT = Path(__file__).parents[3]
ELSEWHERE = {"actions/leave_broken.py"}
"""The file of the example."""


def test_the_page_has_a_line_for_every_folder_and_for_no_other() -> None:
    page = (ROOT / "docs" / "core.md").read_text(encoding="utf-8")
    core = Path(carrel_scheduler.core.__file__).parent
    folders = sorted(path.parent.name for path in core.glob("*/__init__.py"))
    assert sorted(re.findall(r"^\| `(\w+)/` \|", page, re.MULTILINE)) == folders


def test_every_file_that_the_page_names_is_there() -> None:
    page = (ROOT / "docs" / "core.md").read_text(encoding="utf-8")
    core = Path(carrel_scheduler.core.__file__).parent
    named = set(re.findall(r"`((?:\w+/)?\w+\.py)`", page))
    assert len(named) > 50
    assert [name for name in sorted(named) if not (core / name).is_file()] == sorted(ELSEWHERE)
