"""Commands whose options are read without pydantic, which takes longer to import than most run.

Typer has pydantic turn words into values. An option that was not given, and one that is a text
anyway, needs no turning; only the others ask for it.
"""

from collections.abc import Callable
from typing import Any, Self

from typer.core import TyperCommand, TyperGroup
from typing_extensions import override


class Coercion:
    """Coerces an option's value; typer's own coercion is imported only when an option is given."""

    def __init__(self, usual: Callable[[], Any]) -> None:
        self._usual = usual

    def __call__(self) -> Self:
        """Return the object that coerces: itself."""
        return self

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """The value of the option. Raises typer's ``BadParameter``."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        kind = param.type_descriptor
        annotation, info = kind.annotation, kind.parameter_info
        plain = isinstance(annotation, type) and isinstance(value, annotation)
        if plain and info.parser is None and not kind.is_ranged:
            return value
        return self._usual().coerce(value, param=param, ctx=ctx)


def _coerced_when_needed(params: list[Any]) -> list[Any]:
    for one in params:
        if not isinstance(one.get_runtime_param, Coercion):
            one.get_runtime_param = Coercion(one.get_runtime_param)
    return params


class QuickCommand(TyperCommand):
    """A command."""

    @override
    def get_params(self, ctx: Any) -> list[Any]:
        """The options and arguments of a command."""
        return _coerced_when_needed(super().get_params(ctx))


class QuickGroup(TyperGroup):
    """A group of commands."""

    @override
    def get_params(self, ctx: Any) -> list[Any]:
        """The options of a group."""
        return _coerced_when_needed(super().get_params(ctx))
