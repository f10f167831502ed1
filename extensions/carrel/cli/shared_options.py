"""Commands that share options take them as one record; to typer each looks as if it listed them."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, cast, get_type_hints

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Command = Callable[..., None]


def sharing(record: "type[DataclassInstance]") -> Callable[[Command], Command]:
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
