"""Environment variables: required values, switches, choices, numbers, and their errors."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T", bound=str)
MOST = 1e6


class InvalidVariable(Exception):  # noqa: N818
    """A variable has an invalid value."""

    def __init__(self, name: str, value: str, right: str) -> None:
        super().__init__(f"{name}={value!r}: {right} is right")


class MissingSetting(InvalidVariable):
    """A variable without which the process cannot start is not set."""

    def __init__(self, name: str) -> None:
        Exception.__init__(
            self, f"{name} is not set; `carrel up` and the cluster's manifests set it"
        )


def need(env: Mapping[str, str], name: str) -> str:
    """The value of a variable. Raises ``MissingSetting`` if it is not set or empty."""
    if not env.get(name):
        raise MissingSetting(name)
    return env[name]


def choice(env: Mapping[str, str], name: str, values: Sequence[T]) -> T:
    """The value of a variable, one of these; the first by default. Raises ``InvalidVariable``."""
    given = env.get(name) or values[0]
    for value in values:
        if value == given:
            return value
    *most, last = (f"`{value}`" for value in values)
    raise InvalidVariable(name, given, f"{', '.join(most)} or {last}")


def switch(env: Mapping[str, str], name: str) -> bool:
    """Whether a variable is ``on``; ``off`` by default. Raises ``InvalidVariable``."""
    return choice(env, name, ("off", "on")) == "on"


def number(
    env: Mapping[str, str], name: str, default: float, *, least: float, most: float = MOST
) -> float:
    """The number of a variable, from ``least`` to ``most``. Raises ``InvalidVariable``."""
    given = env.get(name, "")
    try:
        value = float(given) if given else default
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise InvalidVariable(name, given, f"a number from {least:g} to {most:g}")
    return value
