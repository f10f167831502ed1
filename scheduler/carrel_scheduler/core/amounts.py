"""Amounts as people read them: `2 GPUs`, `0.5 GPU`, `8 CPU cores`, `1.5 GiB`."""

from carrel_scheduler.core.resources import MILLI

MIB_PER_GIB = 1024


def amount(resource: str, value: int) -> str:
    """An amount with its unit; ``value`` in the unit of the core (thousandths, MiB)."""
    if resource == "memory":
        return f"{_number(value, MIB_PER_GIB)} GiB of memory"
    noun = "GPU" if resource == "gpu" else "CPU core"
    return f"{_number(value, MILLI)} {noun}{'s' if value > MILLI or value == 0 else ''}"


def count(resource: str, value: int) -> str:
    """The bare number, where the unit stands beside it already."""
    if resource == "memory":
        return f"{_number(value, MIB_PER_GIB)} GiB"
    return _number(value, MILLI)


def is_one(resource: str, value: int) -> bool:
    """Whether a verb after this amount is singular."""
    return resource == "memory" or 0 < value <= MILLI


def _number(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return f"{whole:,}"
    return f"{value / unit:,.2f}".rstrip("0").rstrip(".")
