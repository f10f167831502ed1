"""The table itself, and how rows are found in it."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Final

from carrel.errors import BadSetting
from carrel.options.common import IDENTITY, LIFE, MACHINE, PLACE, TERMINAL
from carrel.options.gangs import GANGS
from carrel.options.kinds import KINDS
from carrel.options.notebooks import BOARDS, NOTEBOOKS, SCHEDULES
from carrel.options.option import Option, Surface
from carrel.options.searching import EXPERIMENTS
from carrel.options.serving import ENDPOINTS, PORTS

TABLE: Final[tuple[Option, ...]] = (
    *IDENTITY,
    *MACHINE,
    *GANGS,
    *EXPERIMENTS,
    *ENDPOINTS,
    *PORTS,
    *NOTEBOOKS,
    *SCHEDULES,
    *BOARDS,
    *PLACE,
    *LIFE,
    *TERMINAL,
)
_ALL_KINDS: Final = tuple(kind.name for kind in KINDS)


def rows(surface: Surface, kinds: Iterable[str] = _ALL_KINDS) -> tuple[Option, ...]:
    """The rows of a surface for these kinds of work; a flag may have one row for each kind."""
    wanted = frozenset(kinds)
    return tuple(row for row in TABLE if surface in row.surfaces and row.kinds & wanted)


def by_flag(found: Iterable[Option]) -> dict[str, list[Option]]:
    """Rows of the same flag together, in the order of the table."""
    flags: dict[str, list[Option]] = {}
    for row in found:
        flags.setdefault(row.flag, []).append(row)
    return flags


def sentence(same_flag: Sequence[Option]) -> str:
    """The help of a flag: the sentences of its rows, and what is taken without it."""
    text, row = " ".join(row.help for row in same_flag if row.help), same_flag[0]
    if row.value is None or row.default in (None, ""):
        return text
    return f"{text} By default {row.value.spell(row.default)}."


def spellings(found: Iterable[Option]) -> list[str]:
    """The flags to suggest for a misspelt one."""
    shown = [row for row in found if not row.hidden]
    return [f"--{flag}" for row in shown for flag in (row.flag, row.off) if flag]


def nearest(word: str, known: Iterable[str]) -> str:
    """The flag that looks most like a word; empty when none does."""
    bare = {one.strip("-"): one for one in known}
    close = difflib.get_close_matches(word.partition("=")[0].strip("-"), bare, n=1)
    return bare[close[0]] if close else ""


def unknown(word: str, known: Iterable[str]) -> BadSetting:
    """The refusal of an option that is not there, with the nearest one that is."""
    spelt = word.partition("=")[0]
    elsewhere = [row for row in TABLE if row.flag == spelt.strip("-")]
    right = nearest(word, known)
    if any(row.kinds >= frozenset(_ALL_KINDS) for row in elsewhere):
        hint = " here; it is one of `carrel submit`."
    elif elsewhere:
        kinds = frozenset[str]().union(*(row.kinds for row in elsewhere))
        hint = f" here: it is for {' or '.join(one.noun for one in KINDS if one.name in kinds)}."
    else:
        hint = f"; did you mean {right}?" if right else "."
    return BadSetting(f"There is no option {spelt}{hint}", code="unknown_option")
