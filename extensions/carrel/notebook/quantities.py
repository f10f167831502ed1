"""Options of trainings as people type them. Amounts and times are read as in the shell tool."""

import math

from carrel.cli import units


def cpu_millicores(text: str) -> int:
    """``2``, ``0.5``, ``500m``. Raises ``BadSetting``, ``ValueError``."""
    return _positive(units.cpu_millicores(text, ""), text)


def memory_bytes(text: str) -> int:
    """``4G``, ``512Mi``. Raises ``BadSetting``, ``ValueError``."""
    return _positive(units.memory_bytes(text, ""), text)


def seconds(text: str) -> float:
    """``30``, ``45s``, ``5m``, ``2h``. Raises ``BadSetting``."""
    return units.seconds(text, "")


def gpu_count(text: str) -> float:
    """``1``, ``0.5``. Raises ``ValueError``."""
    try:
        gpus = float(text)
    except ValueError:
        gpus = math.nan
    if not gpus >= 0 or math.isinf(gpus):
        raise ValueError(f"{text!r} is no number of GPUs; write 0, 1 or 0.5.")
    return gpus


def variable(text: str) -> tuple[str, str]:
    """``NAME=value``. Raises ``ValueError``."""
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise ValueError(f"{text!r} is no environment variable; write NAME=value.")
    return name, value


def names(text: str) -> list[str]:
    """``a,b``: Python names. Raises ``ValueError``."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    if not found or not all(part.isidentifier() for part in found):
        raise ValueError(f"{text!r} is no list of variables; write their names as a,b.")
    return found


def _positive(amount: int, text: str) -> int:
    if amount <= 0:
        raise ValueError(f"{text!r} is nothing; write more than 0.")
    return amount
