"""Pictures as plain SVG, for pages that keep no script: saved notebooks and web viewers."""

import math
from collections.abc import Sequence

from carrel.widgets.page import escape
from carrel.widgets.trials import Search

WIDTH, HEIGHT, EDGE = 460.0, 140.0, 8.0
INK, BEST = "#1559b3", "#1b7a3d"


def history(search: Search) -> str:
    """Each trial's value as a dot, the best so far as a line; empty without any value."""
    done = [one for one in search.in_order() if one.value is not None and math.isfinite(one.value)]
    if not done:
        return ""
    values = [one.value for one in done if one.value is not None]
    points = _scaled([float(one.number) for one in done], values)
    best, steps = None, []
    choose = min if search.minimize else max
    for (x, _), value in zip(points, values, strict=True):
        best = value if best is None else choose(best, value)
        steps.append((x, _scaled([0.0], [best], within=values)[0][1]))
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in points)
    label = f"{search.metric} of {len(done)} trials, from {min(values):.4g} to {max(values):.4g}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" '
        f'viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="{WIDTH:g}" height="{HEIGHT:g}">'
        f"<title>{escape(label)}</title>{_line(steps, BEST)}"
        f'<g fill="{INK}">{dots}</g></svg>'
    )


def curve(name: str, points: Sequence[Sequence[float]]) -> str:
    """One metric as a line; empty without two values."""
    known = [(step, value) for step, value in points if math.isfinite(value)]
    if len(known) < 2:
        return ""
    steps, values = [step for step, _ in known], [value for _, value in known]
    label = f"{name}: {values[-1]:.4g} at step {steps[-1]:,.0f}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(label)}" '
        f'viewBox="0 0 {WIDTH:g} {HEIGHT:g}" width="220" height="67">'
        f"<title>{escape(label)}</title>{_line(_scaled(steps, values), INK)}</svg>"
    )


def _line(points: Sequence[tuple[float, float]], colour: str) -> str:
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{drawn}"/>'


def _scaled(
    across: Sequence[float], up: Sequence[float], within: Sequence[float] | None = None
) -> list[tuple[float, float]]:
    """Points in the picture; ``within``: all values that the height is made for."""
    heights = up if within is None else within
    left, right, low, high = min(across), max(across), min(heights), max(heights)
    return [
        (
            EDGE + (x - left) / ((right - left) or 1.0) * (WIDTH - 2 * EDGE),
            HEIGHT - EDGE - (y - low) / ((high - low) or 1.0) * (HEIGHT - 2 * EDGE),
        )
        for x, y in zip(across, up, strict=True)
    ]
