"""Environment variables: required values, switches, numbers, and their errors."""

import math
from collections.abc import Mapping

MOST = 1e6


class MissingSetting(Exception):  # noqa: N818
    """A variable without which the service cannot start is not set."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"{name} is not set; `carrel up` sets it, or see carrel_scheduler.service.settings"
        )


class BadSetting(Exception):  # noqa: N818
    """A variable has an invalid value."""

    def __init__(self, name: str, value: str, right: str) -> None:
        super().__init__(f"{name}={value!r}: {right} is right")


def need(env: Mapping[str, str], name: str) -> str:
    """The value of a variable. Raises ``MissingSetting`` if it is not set."""
    if name not in env:
        raise MissingSetting(name)
    return env[name]


def switch(env: Mapping[str, str], name: str) -> bool:
    """Whether a variable is ``on``; ``off`` by default. Raises ``BadSetting``."""
    match env.get(name) or "off":
        case "on":
            return True
        case "off":
            return False
        case other:
            raise BadSetting(name, other, "`on` or `off`")


def number(env: Mapping[str, str], name: str, default: float, *, least: float) -> float:
    """The number of a variable, from ``least`` to ``MOST``. Raises ``BadSetting``."""
    given = env.get(name, "")
    try:
        value = float(given) if given else default
    except ValueError:
        value = math.nan
    if not least <= value <= MOST:
        raise BadSetting(name, given, f"a number from {least:g} to {MOST:g}")
    return value
