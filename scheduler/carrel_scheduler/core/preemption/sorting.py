"""A stable order of many times, digit by digit: several times faster than comparing them.

NumPy sorts keys of sixteen bits by counting; the bits of a float, read as an integer, stand in the
order of the floats. Whole seconds leave the lower half of these bits empty: they are not looked at.
"""

import numpy as np
import numpy.typing as npt

from carrel_scheduler.core.layers import Counts

FEW = 4096
"""Up to so many are compared."""
DIGIT = 16
SIGN = (1 << 63) - 1


def ascending(values: npt.NDArray[np.float64]) -> Counts:
    """Positions in ascending order of the values, equal ones as they stand."""
    if len(values) <= FEW:
        return np.argsort(values, kind="stable")
    bits = (values + 0.0).view(np.int64)
    bits ^= (bits >> 63) & SIGN
    bits -= bits.min()
    keys, order = bits.view(np.uint64), np.zeros(0, np.int64)
    used = int(np.bitwise_or.reduce(keys))
    empty = max((used & -used).bit_length() - 1, 0)
    keys >>= np.uint64(empty)
    for shift in range(0, (used >> empty).bit_length() or 1, DIGIT):
        digits = (keys >> np.uint64(shift)).astype(np.uint16)
        if shift:
            order = order.take(np.argsort(digits.take(order), kind="stable"))
        else:
            order = np.argsort(digits, kind="stable")
    return order
