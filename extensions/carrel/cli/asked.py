"""The options of ``carrel submit``, made from the table that every surface is made from."""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any

from typer import Option as TyperOption

from carrel import options
from carrel.options import Option, Surface

Texts = list[str] | None
Command = Callable[..., None]


def with_options(command: Command) -> Command:
    """A decorator: ``**chosen`` of a command becomes the table's options, by flag."""
    return with_rows(options.rows(Surface.CLI))(command)


def with_rows(rows: Iterable[Option]) -> Callable[[Command], Command]:
    """The same with these options of the table."""
    return lambda command: _given(command, options.by_flag(rows))


def _given(command: Command, flags: Mapping[str, list[Option]]) -> Command:
    signature = inspect.signature(command, eval_str=True)
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    keys = {same_flag[0].key: flag for flag, same_flag in flags.items()}

    def called(**words: Any) -> None:
        command(
            **{name: value for name, value in words.items() if name not in keys},
            **{flag: words[key] for key, flag in keys.items()},
        )

    called.__doc__, called.__name__ = command.__doc__, command.__name__
    listed: Any = called
    listed.__signature__ = signature.replace(
        parameters=[*own, *(_parameter(same_flag) for same_flag in flags.values())]
    )
    return called


def _parameter(same_flag: list[Option]) -> inspect.Parameter:
    row = same_flag[0]
    spelt = list(row.spellings)
    if row.off:
        spelt[0] += f"/--{row.off}"
    kind: Any = str | None
    default = None
    if row.value is None:
        kind, default = (bool | None, None) if row.off else (bool, False)
    elif row.many:
        kind = list[str] | None
    told = TyperOption(
        *spelt,
        help=options.sentence(same_flag),
        metavar=row.shown or None,
        rich_help_panel=row.group,
        hidden=row.hidden,
    )
    return inspect.Parameter(
        row.key,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind, told],
    )
