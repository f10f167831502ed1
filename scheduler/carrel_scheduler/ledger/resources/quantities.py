"""Amounts as Kubernetes writes them (``500m``, ``8Gi``), to whole thousandths or bytes and back.

What is written reads back as the same number; a fraction of the least unit is rounded up, as the
API server does.
"""

import re
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache
from typing import Final

from carrel_scheduler.ledger.errors import InvalidArgument

_SUFFIXES: Final = {
    "": Decimal(1),
    **{name: Decimal(10) ** power for name, power in (("n", -9), ("u", -6), ("m", -3))},
    **{name: Decimal(1000) ** power for power, name in enumerate("kMGTPE", start=1)},
    **{f"{name}i": Decimal(1024) ** power for power, name in enumerate("KMGTPE", start=1)},
}
_BINARY: Final = tuple((1024**power, f"{name}i") for power, name in enumerate("KMGTPE", start=1))
PATTERN: Final = r"^[0-9]+([.][0-9]+)?([eE][0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?$"
_FORM: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][0-9]{1,2})?)([numkMGTPE]|[KMGTPE]i|)")
_MILLI: Final = 1000

Quantity = str | int | float


def amount(given: Quantity, field: str) -> Decimal:
    """The number of a quantity; raises ``InvalidArgument`` about ``field``."""
    found = _FORM.fullmatch(str(given))
    if found is None:
        raise InvalidArgument(field, given, "an amount such as 2, 500m or 8Gi")
    return Decimal(found[1]) * _SUFFIXES[found[2]]


@lru_cache(1024)
def milli(given: Quantity, field: str) -> int:
    """Thousandths."""
    return _whole(amount(given, field) * _MILLI)


@lru_cache(1024)
def whole(given: Quantity, field: str) -> int:
    """Whole units: bytes."""
    return _whole(amount(given, field))


def _whole(number: Decimal) -> int:
    return int(number.to_integral_value(ROUND_CEILING))


def of_milli(number: int) -> str:
    """Thousandths as a quantity: ``500m``, ``2``."""
    return f"{number}m" if number % _MILLI else str(number // _MILLI)


def of_bytes(number: int) -> str:
    """Bytes as a quantity in the largest binary unit without a fraction."""
    fitting = [(size, name) for size, name in _BINARY if number and number % size == 0]
    size, name = fitting[-1] if fitting else (1, "")
    return f"{number // size}{name}"
