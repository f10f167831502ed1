"""Kubernetes' quantities, exactly, as integers of a billionth of the unit; and ``PodRefused``.

Kubernetes keeps nothing finer than ``n`` and rounds up what is, so sums of these integers are the
sums that it forms; rounding to millicores, bytes or pieces comes last, and up.
"""

import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache
from typing import Final


class PodRefused(ValueError):  # noqa: N818 - named for what it is, as the core's refusals are
    """A field of a pod or node cannot be understood or is not supported.

    Attributes:
        code: stable token, such as ``bad_quantity`` or ``resource_claims``.
        field: what is wrong, as a path in the object.
        value: of that field.
        expected: what would be right.
    """

    def __init__(self, code: str, field: str, value: object, expected: str) -> None:
        super().__init__(f"{field}={value!r}: {expected} ({code})")
        self.code, self.field, self.value, self.expected = code, field, value, expected

    @property
    def sentence(self) -> str:
        """The error as a sentence for the author of the object."""
        return f"`{self.field}` is `{self.value}`; it should be {self.expected}."


NANO: Final = 10**9
MOST: Final = (2**63 - 1) * NANO
_LONGEST: Final = 64
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_EXA: Final = {"E": 18}
_WRITTEN: Final = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))"
    r"(?P<suffix>[eE][+-]?\d{1,3}|[KMGTPE]i|[numkMGTPE]?)",
    re.ASCII,
)
_EXPECTED: Final = "a quantity such as 2, 500m, 1.5Gi, 10M or 1e3"


@lru_cache(maxsize=8192)
def nanos(written: str, field: str = "quantity") -> int:
    """A quantity in billionths of its unit, rounded up; at most 2^63 - 1 units.

    Raises:
        PodRefused: ``bad_quantity``.
    """
    found = _WRITTEN.fullmatch(written) if len(written) <= _LONGEST else None
    if found is None:
        raise PodRefused("bad_quantity", field, written, _EXPECTED)
    number, suffix = found["number"], found["suffix"]
    with localcontext(prec=_LONGEST * 2, rounding=ROUND_CEILING) as context:
        context.Emax, context.Emin = 9999, -9999
        value = Decimal(number)
        if suffix in _BINARY:
            value *= _BINARY[suffix]
        else:
            exponent = (_DECIMAL | _EXA).get(suffix)
            value = value.scaleb(int(suffix[1:]) if exponent is None else exponent)
        whole = int((value * NANO).to_integral_value()) if value < MOST else MOST
    return min(whole, MOST)


def milli(nano: int) -> int:
    """Thousandths, rounded up: CPU."""
    return -(-nano // 10**6)


def pieces(nano: int) -> int:
    """Whole units, rounded up: bytes, devices, pods."""
    return -(-nano // NANO)


def milli_floor(nano: int) -> int:
    """Thousandths, rounded down: for amounts that a node offers."""
    return nano // 10**6


def pieces_floor(nano: int) -> int:
    """Whole units, rounded down."""
    return nano // NANO


def parsed(quantities: Mapping[str, str], field: str) -> dict[str, int]:
    """Billionths by resource.

    Raises:
        PodRefused: ``bad_quantity``, also for a negative one.
    """
    found = {name: nanos(written, field) for name, written in quantities.items()}
    for name, value in found.items():
        if value < 0:
            raise PodRefused("bad_quantity", field, quantities[name], "a quantity of at least 0")
    return found
