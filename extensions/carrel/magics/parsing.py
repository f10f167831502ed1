"""Parsers for magic lines. A mistake is a ``UsageError``: one line, no traceback."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from IPython.core.error import UsageError
from IPython.utils._process_common import arg_split
from typing_extensions import override

from carrel import options
from carrel.errors import BadSetting
from carrel.options import Option, RequestFields, Surface


class MagicParser(argparse.ArgumentParser):
    """An argument parser that does not exit the kernel."""

    def __init__(self, magic: str, description: str) -> None:
        super().__init__(
            prog=magic,
            description=description,
            add_help=False,
            exit_on_error=False,
            allow_abbrev=False,
        )
        self.add_argument("-h", "--help", action="store_true", help="Show this.")
        self.known: list[str] = ["--help"]

    @override
    def error(self, message: str) -> NoReturn:
        text = message.rstrip()
        end = "" if text.endswith(("?", ".")) else "."
        raise UsageError(f"{self.prog}: {text}{end} `{self.prog} -h` shows what there is.")

    def learn(self, rows: Iterable[Option]) -> None:
        """Take these options as texts; ``options.read`` makes values of them."""
        for same_flag in options.by_flag(rows).values():
            row, help_text = same_flag[0], options.sentence(same_flag).replace("%", "%%")
            self.known += options.spellings([row])
            if row.value is None:
                self.add_argument(
                    *row.spellings, dest=row.key, action="store_true", default=None, help=help_text
                )
                if row.off:
                    self.add_argument(
                        f"--{row.off}", dest=row.key, action="store_false", default=None,
                        help=f"Not --{row.flag}.",
                    )  # fmt: skip
                continue
            action = "append" if row.many else "store"
            self.add_argument(
                *row.spellings, dest=row.key, action=action, metavar=row.shown, help=help_text
            )

    def read(self, line: str) -> argparse.Namespace:
        """Parse a magic's line. Raises ``UsageError``."""
        try:
            parsed, rest = self.parse_known_args(arg_split(line, posix=True))
        except argparse.ArgumentError as error:
            self.error(
                f"{error.argument_name}: {error.message}" if error.argument_name else str(error)
            )
        except ValueError as error:  # a quote that is not closed
            self.error(str(error))
        for word in rest:
            if word.startswith("-"):
                self.error(str(options.unknown(word, self.known)))
        if rest:
            self.error(f"{rest[0]!r} is one word too many")
        return parsed

    def value(self, row: Option, parsed: argparse.Namespace) -> Any:
        """The value of one option; ``None`` when it was not given. Raises ``UsageError``."""
        text = getattr(parsed, row.key)
        if text is None or row.value is None:
            return text
        try:
            return row.value.read(text)
        except BadSetting as error:
            self.error(f"--{row.flag} {str(error).strip()}")

    def asked(self, parsed: argparse.Namespace, kinds: Sequence[str]) -> RequestFields:
        """The fields that the options set. Raises ``UsageError``."""
        flags = options.by_flag(options.rows(Surface.MAGIC, kinds))
        raw: dict[str, Any] = {
            flag: getattr(parsed, same_flag[0].key, None) for flag, same_flag in flags.items()
        }
        try:
            return options.read(raw, Surface.MAGIC, kinds)
        except BadSetting as error:
            self.error(str(error))


def parser(
    magic: str,
    description: str,
    rows: Iterable[Option] = (),
    names: str = "",
    many: bool = False,
) -> MagicParser:
    """A parser for a magic that takes names (``NAME`` or ``PROJECT/NAME``) and options."""
    made = MagicParser(magic, description)
    if names:
        made.add_argument("names", nargs="*" if many else "?", metavar="NAME", help=names)
    made.learn(rows)
    return made
