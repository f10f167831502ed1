"""Kubernetes' quantities (``500m``, ``8Gi``), exactly, as integers of a billionth of the unit.

Kubernetes keeps nothing finer than ``n`` and rounds up what is, so sums of these integers are the
sums that it forms; rounding to millicores, bytes or pieces comes last.
"""

import re
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache
from typing import Final

NANO: Final = 10**9
MOST: Final = (2**63 - 1) * NANO
EXPECTED: Final = "a quantity such as 2, 500m, 1.5Gi, 10M or 1e3"
_LONGEST: Final = 64
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_EXA: Final = {"E": 18}
_WRITTEN: Final = re.compile(
    r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))"
    r"(?P<suffix>[eE][+-]?\d{1,3}|[KMGTPE]i|[numkMGTPE]?)",
    re.ASCII,
)


@lru_cache(maxsize=8192)
def nanos(written: str) -> int | None:
    """A quantity in billionths of its unit, rounded up, at most 2^63 - 1 units.

    ``None``: the text is no quantity.
    """
    found = _WRITTEN.fullmatch(written) if len(written) <= _LONGEST else None
    if found is None:
        return None
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
