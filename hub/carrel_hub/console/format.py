"""Formats of amounts and times, the same on every page of the console.

Nothing here knows a clock: ``now`` is given. Times are epoch seconds.
"""

import math
from datetime import UTC, datetime

from markupsafe import Markup

from carrel.units import size as size  # noqa: PLC0414 - used as part of this module
from carrel.wording import duration as duration  # noqa: PLC0414 - used as part of this module

GIB = 1024**3


def number(value: float) -> str:
    """``1200`` as ``1,200``, ``0.25`` as ``0.25``, ``2.0`` as ``2``: at most two decimals."""
    rounded = round(value, 2)
    if rounded == int(rounded):
        return f"{int(rounded):,}"
    return f"{rounded:,.2f}".rstrip("0")


def measured(value: float) -> str:
    """A reported value with four significant digits: ``0.3142``, ``1,200``, ``2.1e-06``."""
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    if abs(value) >= 1000 and abs(value) < 1e9:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def gpus(value: float) -> str:
    """``0.5 GPU``, ``1 GPU``, ``2 GPUs``, ``no GPU``."""
    if value == 0:
        return "no GPU"
    return f"{number(value)} {'GPU' if value <= 1 else 'GPUs'}"


def cpus(millicores: float) -> str:
    """Thousandths of a core as ``0.5 CPU``, ``4 CPUs``."""
    cores = millicores / 1000
    return f"{number(cores)} {'CPU' if cores <= 1 else 'CPUs'}"


def gib(amount_bytes: float) -> str:
    """Bytes in GiB; very small amounts in MiB, so that nothing is rounded to zero."""
    if 0 < amount_bytes < 0.01 * GIB:
        return f"{number(amount_bytes / 1024**2)} MiB"
    return f"{number(amount_bytes / GIB)} GiB"


def share(value: float) -> str:
    """A share of one as whole percent."""
    return f"{round(value * 100)} %"


def exact(at: float) -> str:
    """The time with its zone: ``2026-11-21 13:05:12 UTC``."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _time(at: float, text: str) -> Markup:
    machine = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(machine, exact(at), text)


def moment(at: float, now: float) -> Markup:
    """``3 min ago``, ``in 12 min`` or ``now``, the exact time on hover."""
    distance = now - at
    if abs(distance) < 1:
        return _time(at, "now")
    if distance > 0:
        return _time(at, f"{duration(distance)} ago")
    return _time(at, f"in {duration(-distance)}")


def since(at: float, now: float) -> Markup:
    """The duration since a time: ``12 min``, the exact time on hover."""
    return _time(at, duration(now - at))
