"""Amounts as people read them: `2 GPUs`, `0.5 GPU`, `8 CPU cores`, `1.5 GiB`, `3 tasks`."""

from typing import Final

from carrel_scheduler.core.resources import MILLI

MIB_PER_GIB = 1024
GPU_MEMORY = "gpu_memory"
MEMORY: Final = {"memory": "memory", GPU_MEMORY: "GPU memory"}
"""Resources in MiB, as people call them."""
NOUNS: Final = {"tasks": "task", "mig": "instance"}
"""Resources that are counted one by one, as people call them; others go by their name."""


def amount(resource: str, value: int) -> str:
    """An amount with its unit; ``value`` in the unit of the core (thousandths, MiB, pieces)."""
    if resource in MEMORY:
        return f"{_number(value, MIB_PER_GIB)} GiB of {MEMORY[resource]}"
    plural = "" if is_one(resource, value) else "s"
    if resource in ("gpu", "cpu"):
        return f"{_number(value, MILLI)} {'GPU' if resource == 'gpu' else 'CPU core'}{plural}"
    if resource in NOUNS:
        return f"{value:,} {NOUNS[resource]}{plural}"
    return f"{value:,} `{resource}`"


def count(resource: str, value: int) -> str:
    """The bare number, where the unit stands beside it already."""
    if resource in MEMORY:
        return f"{_number(value, MIB_PER_GIB)} GiB"
    return _number(value, MILLI) if resource in ("gpu", "cpu") else f"{value:,}"


def is_one(resource: str, value: int) -> bool:
    """Whether a verb after this amount is singular."""
    if resource in MEMORY:
        return True
    return 0 < value <= MILLI if resource in ("gpu", "cpu") else value == 1


def _number(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return f"{whole:,}"
    return f"{value / unit:,.2f}".rstrip("0").rstrip(".")
