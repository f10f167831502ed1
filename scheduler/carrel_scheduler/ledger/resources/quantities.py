"""Amounts as Kubernetes writes them (``500m``, ``8Gi``), to whole thousandths or bytes and back.

What is written reads back as the same number; a fraction of the least unit is rounded up, as the
API server does.
"""

from functools import lru_cache
from typing import Final

from carrel_scheduler.ledger.errors import InvalidArgument
from carrel_schema.text import quantities

_BINARY: Final = tuple((1024**power, f"{name}i") for power, name in enumerate("KMGTPE", start=1))
PATTERN: Final = r"^[0-9]+([.][0-9]+)?([eE][0-9]{1,2}|[numkMGTPE]|[KMGTPE]i)?$"
_MILLI: Final = 1000

Quantity = str | int | float


def _nanos(given: Quantity, field: str) -> int:
    found = quantities.nanos(str(given))
    if found is None or found < 0:
        raise InvalidArgument(field, given, quantities.EXPECTED)
    return found


@lru_cache(1024)
def milli(given: Quantity, field: str) -> int:
    """Thousandths. Raises ``InvalidArgument`` about ``field``."""
    return quantities.milli(_nanos(given, field))


@lru_cache(1024)
def whole(given: Quantity, field: str) -> int:
    """Whole units: bytes. Raises ``InvalidArgument`` about ``field``."""
    return quantities.pieces(_nanos(given, field))


def of_milli(number: int) -> str:
    """Thousandths as a quantity: ``500m``, ``2``."""
    return f"{number}m" if number % _MILLI else str(number // _MILLI)


def of_bytes(number: int) -> str:
    """Bytes as a quantity in the largest binary unit without a fraction."""
    fitting = [(size, name) for size, name in _BINARY if number and number % size == 0]
    size, name = fitting[-1] if fitting else (1, "")
    return f"{number // size}{name}"
