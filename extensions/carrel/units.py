"""Amounts and times as people write and read them.

Read: ``2`` or ``500m`` processors, ``4G`` memory (binary, as in Docker), ``90``, ``45s``, ``5m``,
``8h``, ``2d`` of time. Written: ``45 s``, ``12 min``, ``3 h 05 min``, ``2 d 4 h``, ``4 GiB``.
"""

import re
from datetime import UTC, datetime
from typing import Final

from carrel.errors import BadSetting
from carrel.wording import duration as duration  # noqa: PLC0414 - used as part of this module

MEMORY_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
SECONDS: Final = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}


def cpu_millicores(text: str, option: str = "--cpu") -> int:
    """``2``, ``0.5`` or ``500m`` as millicores. Raises ``BadSetting``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(m?)", text.strip())
    if found is None:
        raise BadSetting(f"{option} {text!r} is no number of processors; write 2, 0.5 or 500m.")
    return round(float(found[1]) * (1 if found[2] else 1000))


def memory_bytes(text: str, option: str = "--memory") -> int:
    """``4G``, ``512Mi`` or plain bytes; units are binary. Raises ``BadSetting``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b|i)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise BadSetting(f"{option} {text!r} is no amount of memory; write 512M or 4G.")
    unit: int = 1024 ** MEMORY_UNITS[found[2].lower()]
    return round(float(found[1]) * unit)


def seconds(text: str, option: str) -> float:
    """``30``, ``45s``, ``10m``, ``8h`` or ``2d`` in seconds. Raises ``BadSetting``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?", text.strip())
    if found is None:
        raise BadSetting(f"{option} {text!r} is no time span; write 45s, 10m, 8h or 2d.")
    return float(found[1]) * SECONDS[found[2] or ""]


def memory(amount: int) -> str:
    """Bytes as GiB, small ones as MiB."""
    if amount < 1024**3:
        return f"{round(amount / 1024**2):,} MiB"
    return f"{number(amount / 1024**3)} GiB"


def size(amount: int) -> str:
    """Bytes of files: ``812 B``, ``4.2 KiB``, ``1.3 GiB``."""
    value, unit = float(amount), "B"
    for unit in ("B", "KiB", "MiB", "GiB"):  # noqa: B007 - the last one is used below
        if value < 1024:
            break
        value /= 1024
    else:
        unit = "TiB"
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def stamp(at: float) -> str:
    """A time, to the minute."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def number(value: float) -> str:
    """A number with at most two decimals, without trailing zeros, with separators."""
    text = f"{value:,.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def gpus(value: float) -> str:
    """``0.5 GPU``, ``1 GPU``, ``2 GPUs``."""
    return f"{number(value)} {'GPUs' if value > 1 or value == 0 else 'GPU'}"
