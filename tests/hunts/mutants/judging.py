"""Mutants that change nothing anybody could see, with the reason each.

They are known by their module and by the changed lines before and after, not by numbers of lines;
a text that says the same in two places of a module names both.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from hunts.mutants.making import Mutant

LIST = Path(__file__).with_name("equivalent.json")


@dataclass(frozen=True, slots=True)
class Equivalents:
    """(module, before, after) -> why nothing changes."""

    reasons: dict[tuple[str, str, str], str]

    def __contains__(self, mutant: Mutant) -> bool:
        return (mutant.module, mutant.before, mutant.after) in self.reasons


def known(path: Path = LIST) -> Equivalents:
    """Read the list.

    Raises:
        KeyError: An entry lacks one of its four fields.
    """
    entries = json.loads(path.read_text(encoding="utf-8"))
    return Equivalents(
        {(one["module"], one["before"], one["after"]): one["reason"] for one in entries}
    )
