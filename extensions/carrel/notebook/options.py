"""What can be said about a training when it is sent away, as one table.

Each row knows its flag, how its text is read, and which field of the API it fills. Surfaces build
their parsers from the rows; none of them knows a field by itself.
"""

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from carrel.errors import BadSetting
from carrel.notebook import quantities


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        flag: without the dashes.
        read: text to value; raises ``ValueError`` with a sentence. ``None``: a switch.
        help: one sentence.
        field: of the API's workload; empty for what the surface itself does.
        shown: how the value is written in help texts.
        many: may be given more than once.
    """

    flag: str
    read: Callable[[str], Any] | None
    help: str
    field: str = ""
    shown: str = ""
    many: bool = False
    short: str = ""

    @property
    def attribute(self) -> str:
        """The name of its parsed value."""
        return "option_" + self.flag.replace("-", "_")


RESOURCES: Final = (
    Option("gpus", quantities.gpu_count, "GPUs (default 0).", "gpus", "N", short="g"),
    Option("cpu", quantities.cpu_millicores, "Processors: 2, 500m.", "cpu_millicores", "N"),
    Option("memory", quantities.memory_bytes, "Memory: 4G, 512M.", "memory_bytes", "SIZE"),
)
PLACE: Final = (
    Option("project", str, "The project it belongs to.", "project", "NAME", short="p"),
    Option(
        "priority", str, "Its place among the project's own: low, train, high.", "priority", "P"
    ),
)
RUNNING: Final = (
    Option("env", quantities.variable, "An environment variable; may be repeated.",
           "environment", "NAME=VALUE", many=True, short="e"),
    Option("checkpoint-every", quantities.seconds,
           "How often `carrel.checkpoint` saves at most: 30, 5m.",
           "checkpoint_every_seconds", "TIME"),
    Option("grace", quantities.seconds, "Time to save its work when it has to give way.",
           "grace_seconds", "TIME"),
)  # fmt: skip
CELL: Final = (
    Option("name", str, "The training's name; by default numbered.", "name", "NAME", short="n"),
    Option("in", quantities.names, "Variables of this notebook to take along.", "inputs", "A,B"),
    Option("to", str, "A variable to put the job's handle in.", "", "NAME"),
    Option("dry-run", None, "Say what would happen and send nothing."),
    Option("wait", None, "Wait until it ends; the stop button leaves it running."),
)
TRAIN: Final = CELL + RESOURCES + PLACE + RUNNING


def add_to(parser: argparse.ArgumentParser, options: Iterable[Option]) -> None:
    """Teach a parser these options."""
    for option in options:
        flags = [f"--{option.flag}"] + ([f"-{option.short}"] if option.short else [])
        if option.read is None:
            parser.add_argument(
                *flags, dest=option.attribute, action="store_true", help=option.help
            )
            continue
        parser.add_argument(
            *flags,
            dest=option.attribute,
            type=_reader(option.read),
            action="append" if option.many else "store",
            metavar=option.shown,
            help=option.help,
        )


def fields(parsed: argparse.Namespace, options: Iterable[Option]) -> dict[str, Any]:
    """The API fields that were given, by name."""
    given: dict[str, Any] = {}
    for option in options:
        value = getattr(parsed, option.attribute, None)
        if option.field and value is not None:
            given[option.field] = dict(value) if option.many else value
    return given


def chosen(parsed: argparse.Namespace) -> Mapping[str, Any]:
    """All parsed values by flag, also those that fill no field."""
    return {option.flag: getattr(parsed, option.attribute, None) for option in TRAIN}


def _reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    def wrapped(text: str) -> Any:
        try:
            return read(text)
        except (ValueError, BadSetting) as error:
            raise argparse.ArgumentTypeError(str(error).strip().rstrip(".")) from error

    return wrapped
