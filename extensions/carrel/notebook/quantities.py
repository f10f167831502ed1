"""Amounts as people type them: ``0.5`` or ``500m`` processors, ``4G`` of memory, ``2`` GPUs."""

import math
import re
from typing import Final

UNITS: Final = {
    "": 1,
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip
MEMORY: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", re.IGNORECASE)


def memory_bytes(text: str) -> int:
    """``4G``, ``512Mi``, ``1.5GiB``. Raises ``ValueError`` saying what would be right."""
    found = MEMORY.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no amount of memory: write it as 4G, 512M or 1.5Gi")
    size = int(float(found[1]) * UNITS[(found[2] or "").lower()])
    if size <= 0:
        raise ValueError(f"{text!r} of memory is nothing: write an amount such as 4G")
    return size


def cpu_millicores(text: str) -> int:
    """``2``, ``0.5``, ``500m``. Raises ``ValueError``."""
    try:
        milli = float(text[:-1]) if text.endswith("m") else float(text) * 1000
    except ValueError:
        milli = math.nan
    if not milli > 0 or math.isinf(milli):
        raise ValueError(f"{text!r} is no number of processors: write it as 2, 0.5 or 500m")
    return round(milli)


def gpu_count(text: str) -> float:
    """``1``, ``0.5``. Raises ``ValueError``."""
    try:
        gpus = float(text)
    except ValueError:
        gpus = math.nan
    if not gpus >= 0 or math.isinf(gpus):
        raise ValueError(f"{text!r} is no number of GPUs: write it as 0, 1 or 0.5")
    return gpus


def seconds(text: str) -> float:
    """``30``, ``30s``, ``5m``, ``2h``. Raises ``ValueError``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if found is None or float(found[1]) <= 0:
        raise ValueError(f"{text!r} is no length of time: write it as 30, 90s, 5m or 2h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]


def variable(text: str) -> tuple[str, str]:
    """``NAME=value``. Raises ``ValueError``."""
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise ValueError(f"{text!r} is no environment variable: write it as NAME=value")
    return name, value


def names(text: str) -> list[str]:
    """``a,b``: Python names. Raises ``ValueError``."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    wrong = [part for part in found if not part.isidentifier()]
    if wrong or not found:
        raise ValueError(f"{text!r} is no list of variables: write their names as a,b")
    return found
