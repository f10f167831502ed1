"""Amounts by group of nodes as people write them: `a100=4, h100=2.5`; `none` takes one away."""

import math
from collections.abc import Mapping
from typing import Final

NONE: Final = "none"


def read(text: str) -> dict[str, float | None]:
    """The amounts by name of the group, ``None`` for `none`; ``ValueError`` says what is wrong."""
    found: dict[str, float | None] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, amount = (one.strip() for one in part.partition("="))
        if not (name and equals):
            raise ValueError(f"`{part}` should be the name of a node group and GPUs: a100=4")
        if name in found:
            raise ValueError(f"`{name}` should be there once")
        found[name] = None if amount.lower() == NONE else _number(name, amount)
    return found


def spell(amounts: Mapping[str, float]) -> str:
    """The amounts as ``read`` reads them."""
    return ", ".join(f"{name}={amount:g}" for name, amount in sorted(amounts.items()))


def _number(name: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found) or found < 0:
        raise ValueError(f"`{text}` of `{name}` should be a number of GPUs, 0 or larger, or none")
    return found
