"""Parsers for magic lines. A mistake is a ``UsageError``: one line, no traceback."""

import argparse
from collections.abc import Iterable
from typing import NoReturn

from IPython.core.error import UsageError
from IPython.utils._process_common import arg_split
from typing_extensions import override

from carrel.notebook.options import Option, add_to


class Parser(argparse.ArgumentParser):
    """An argument parser that never leaves the kernel."""

    def __init__(self, magic: str, description: str) -> None:
        super().__init__(
            prog=magic,
            description=description,
            add_help=False,
            exit_on_error=False,
            allow_abbrev=False,
        )
        self.add_argument("-h", "--help", action="store_true", help="Show this.")

    @override
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: {message}. `{self.prog} -h` shows what there is.")

    def read(self, line: str) -> argparse.Namespace:
        """Parse a magic's line. Raises ``UsageError``."""
        try:
            return self.parse_args(arg_split(line, posix=True))
        except argparse.ArgumentError as error:
            self.error(str(error))
        except ValueError as error:  # a quote that is not closed
            self.error(str(error))


def parser(
    magic: str,
    description: str,
    options: Iterable[Option] = (),
    names: str = "",
    many: bool = False,
) -> Parser:
    """A parser for a magic that takes names (``NAME`` or ``PROJECT/NAME``) and options."""
    made = Parser(magic, description)
    if names:
        made.add_argument("names", nargs="*" if many else "?", metavar="NAME", help=names)
    add_to(made, options)
    return made
