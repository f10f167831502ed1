"""One option: its spelling, its value, its sentence, and where it goes in a request."""

from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, Final, Literal

from carrel.options.kinds import KINDS
from carrel.options.values import Value

ALL_KINDS: Final = frozenset(kind.name for kind in KINDS)
Collect = Literal["mapping", "list"]


class Surface(Flag):
    """Where an option can be given."""

    CLI = auto()
    MAGIC = auto()
    FORM = auto()
    ALL = CLI | MAGIC | FORM


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table.

    Attributes:
        flag: without the dashes.
        help: one sentence.
        group: the heading it stands under.
        value: how its text is read; ``None``: a switch.
        fields: paths in the API's request that it fills, such as ``experiment.parallelism`` or
            ``routes[].port``; empty for what the surface itself does.
        kinds: for which kinds of work.
        sets: what a switch sets when it is on.
        off: the flag that sets a switch to false; without one a switch can only be on.
        also: further spellings, with dashes where they have only one.
        many: may be given again; ``mapping`` and ``list`` say what the values become together.
        default: what the API takes when it is left out; ``None``: nothing, or nothing fixed.
    """

    flag: str
    help: str
    group: str
    value: Value | None = None
    fields: tuple[str, ...] = ()
    kinds: frozenset[str] = ALL_KINDS
    short: str = ""
    also: tuple[str, ...] = ()
    sets: Any = True
    off: str = ""
    many: Collect | None = None
    default: Any = None
    surfaces: Surface = Surface.ALL
    hidden: bool = False

    @property
    def key(self) -> str:
        """The name of its raw text among parsed arguments; unlike ``in``, never a keyword."""
        return "option_" + self.flag.replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        """All flags with their dashes, the long one first."""
        long = tuple(one if one[0] == "-" else f"--{one}" for one in (self.flag, *self.also))
        return (*long, f"-{self.short}") if self.short else long

    @property
    def shown(self) -> str:
        """How its value is written in help texts; empty for a switch."""
        return self.value.shown if self.value else ""
