"""Options: spelling, value, sentence, and where each goes in a request.

What fills a field takes its bounds, its default and, unless it has one of its own, its sentence
from the field, as the schema says it (``of_field``).
"""

from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, Final, Literal, get_args

import msgspec

from carrel.options import values
from carrel.options.kinds import KINDS
from carrel.options.values import OptionValue
from carrel_schema.constraints import Field, bare, fields
from carrel_schema.wire import WorkloadCreate

ALL_KINDS: Final = frozenset(kind.name for kind in KINDS)
Collect = Literal["mapping", "list"]


class Surface(Flag):
    """The surfaces on which an option can be given."""

    CLI = auto()
    MAGIC = auto()
    FORM = auto()
    ALL = CLI | MAGIC | FORM


@dataclass(frozen=True, slots=True)
class Option:
    """An option: a row of the table.

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
    value: OptionValue | None = None
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
        """The form of its value in help texts; empty for a switch."""
        return self.value.shown if self.value else ""


def of_field(
    flag: str,
    group: str,
    *paths: str,
    text: str = "",
    value: OptionValue | None = None,
    shown: str = "NAME",
    **more: Any,
) -> Option:
    """An option that fills a field of the request.

    Args:
        flag: without the dashes.
        group: the heading it stands under.
        paths: of the field; what is true of the first holds for the others, too.
        text: instead of the field's own sentence.
        value: how its text is read, where the field's type does not say it.
        shown: how a text is written in help texts.
        more: the option's other attributes.
    """
    field = field_at(paths[0])
    default = field.default if isinstance(field.default, str | int | float) else None
    return Option(
        flag,
        text or field.text,
        group,
        value or values.of_hint(field.hint, shown),
        paths,
        **({"default": default} | more),
    )


def field_at(path: str) -> Field:
    """The field of a request at a path such as ``experiment.parallelism``."""
    struct: type[msgspec.Struct] = WorkloadCreate
    *inside, last = path.replace("[]", "").split(".")
    for name in inside:
        hint = bare(fields(struct)[name].hint)
        struct = hint if isinstance(hint, type) else get_args(hint)[0]
    return fields(struct)[last]
