"""Typer parameters of commands, made from the table of options or from a dataclass.

``with_table`` and ``with_rows`` add options of ``carrel.options``, which every surface shares;
``with_record`` adds the fields of a dataclass that several commands take.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

from typer import Option as TyperOption

from carrel import options
from carrel.options import Option, Surface

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


Texts = list[str] | None
Command = Callable[..., None]


def with_table(command: Command) -> Command:
    """A decorator: ``**chosen`` of a command becomes all options of the table, by flag."""
    return with_rows(options.rows(Surface.CLI))(command)


def with_rows(rows: Iterable[Option]) -> Callable[[Command], Command]:
    """The same with some options of the table."""
    return lambda command: _with_flags(command, options.by_flag(rows))


def _with_flags(command: Command, flags: Mapping[str, list[Option]]) -> Command:
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
    option = TyperOption(
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
        annotation=Annotated[kind, option],
    )


def with_record(record: "type[DataclassInstance]") -> Callable[[Command], Command]:
    """A decorator for a command with one parameter that is annotated with ``record``.

    The fields of ``record``, a dataclass, are annotated as typer's options are, with defaults.
    """
    hints = get_type_hints(record, include_extras=True)
    options = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=hints[field.name],
        )
        for field in fields(record)
    ]

    def decorate(command: Command) -> Command:
        signature = inspect.signature(command, eval_str=True)
        [taken] = (one.name for one in signature.parameters.values() if one.annotation is record)

        def flat(**words: Any) -> None:
            shared = record(**{option.name: words.pop(option.name) for option in options})
            command(**words, **{taken: shared})

        listed: Any = wraps(command)(flat)
        listed.__signature__ = signature.replace(
            parameters=[
                parameter
                for one in signature.parameters.values()
                for parameter in (options if one.name == taken else [one])
            ]
        )
        return cast("Command", listed)

    return decorate
