"""Small charts of the use and the memory of a workload's GPUs.

Where nothing was measured the line is broken; where nothing was ever measured, that is said.
"""

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from carrel.models import GpuUsePoint
from carrel_hub.console import format as fmt
from carrel_hub.console.pictures.svg import element

WIDTH: Final = 120
HEIGHT: Final = 24
WORKING: Final = 0.01
"""GPUs that do less count as idle."""
FRESH_SECONDS: Final = 90.0
IDLE_SECONDS: Final = 900.0
"""Idle for so long, it is said and something is offered."""


def use_line(points: Sequence[GpuUsePoint], gpus: float) -> Markup:
    """A chart of the use of ``gpus`` GPUs, with the last and the mean value in words."""
    if not points:
        return Markup('<span class="quiet small">no measurement</span>')
    whole = max(gpus, 1e-6)
    shares = [min(point.gpus / whole, 1.0) for point in points]
    mean = sum(shares) / len(shares)
    said = f"{fmt.share(shares[-1])} now, {fmt.share(mean)} in the mean"
    return _line(points, shares, f"GPU use: {said}", said)


def memory_line(points: Sequence[GpuUsePoint]) -> Markup:
    """A chart of the used GPU memory, with the last and the largest amount in words."""
    if not points:
        return Markup('<span class="quiet small">no measurement</span>')
    most = max(point.memory_mib for point in points)
    shares = [point.memory_mib / max(most, 1) for point in points]
    now, peak = (fmt.gib(mib * 1024.0**2) for mib in (points[-1].memory_mib, most))
    said = f"{now} now, {peak} at most"
    return _line(points, shares, f"GPU memory: {said}", said)


def idle_seconds(points: Sequence[GpuUsePoint], now: float) -> float | None:
    """Seconds for which the GPUs have been idle; ``None`` while they work or are not measured."""
    if not points or now - points[-1].at > FRESH_SECONDS or points[-1].gpus > WORKING:
        return None
    worked = [point.at for point in points if point.gpus > WORKING]
    return now - (worked[-1] if worked else points[0].at)


def _line(points: Sequence[GpuUsePoint], shares: Sequence[float], label: str, said: str) -> Markup:
    first, last = points[0].at, points[-1].at
    span = max(last - first, 1e-3)
    # Readings come at one pace: a pause of several times that is a gap.
    gap = max(4 * span / max(len(points) - 1, 1), FRESH_SECONDS)
    parts: list[list[str]] = [[]]
    before = first
    for point, share in zip(points, shares, strict=True):
        if point.at - before > gap:
            parts.append([])
        before = point.at
        x = 1 + (point.at - first) / span * (WIDTH - 2)
        parts[-1].append(f"{x:.1f},{HEIGHT - 2 - share * (HEIGHT - 4):.1f}")
    lines = [element("polyline", points=" ".join(_drawn(part))) for part in parts]
    picture = element(
        "svg",
        element("title", label),
        *lines,
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        width=WIDTH,
        height=HEIGHT,
        class_="spark",
        role="img",
    )
    return element("span", picture, element("span", said, class_="small"), class_="sparked")


def _drawn(part: list[str]) -> list[str]:
    """A single point as a short line, which can be seen."""
    if len(part) > 1:
        return part
    x, y = part[0].split(",")
    return [part[0], f"{float(x) + 1:.1f},{y}"]
