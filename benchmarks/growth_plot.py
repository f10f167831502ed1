"""A plot of times by the number of nodes, with logarithmic axes, as SVG."""

import math
from collections.abc import Mapping
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 760, 430
LEFT, RIGHT, TOP, BOTTOM = 64, 220, 24, 48
COLOURS = ("#0b6e99", "#b5471b", "#3f7d20", "#6a4c93", "#a8790a", "#56616b", "#c2185b", "#00796b")

Lines = Mapping[str, Mapping[int, float]]
"""Name of a line -> nodes -> milliseconds."""


class _Axis:
    """A logarithmic axis from a power of ten to a power of ten."""

    def __init__(self, values: list[float], begin: float, end: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(values))))
        self._begin, self._end = begin, end

    def at(self, value: float) -> float:
        """The place of a value, in pixels."""
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return self._begin + part * (self._end - self._begin)

    @property
    def ticks(self) -> list[float]:
        """Powers of ten."""
        return [10.0**power for power in range(self.low, self.high + 1)]


def draw(lines: Lines, path: Path) -> None:
    """Write the plot. ``ValueError`` when there is nothing to draw."""
    points = [(n, ms) for line in lines.values() for n, ms in line.items() if ms > 0]
    if not points:
        raise ValueError("no line has a point")
    x = _Axis([float(n) for n, _ in points], LEFT, WIDTH - RIGHT)
    y = _Axis([ms for _, ms in points], HEIGHT - BOTTOM, TOP)
    parts = [*_frame(x, y)]
    for number, (name, line) in enumerate(sorted(lines.items())):
        parts += _line(name, line, number, x, y)
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "\n".join(parts)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12">\n'
        f"<title>Time of a decision by number of nodes</title>\n"
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n{body}\n</svg>\n'
    )


def _frame(x: _Axis, y: _Axis) -> list[str]:
    parts = []
    for tick in x.ticks:
        at = x.at(tick)
        parts.append(_rule(at, TOP, at, HEIGHT - BOTTOM))
        parts.append(_text(at, HEIGHT - BOTTOM + 18, f"{tick:,.0f}", "middle"))
    for tick in y.ticks:
        at = y.at(tick)
        parts.append(_rule(LEFT, at, WIDTH - RIGHT, at))
        parts.append(_text(LEFT - 8, at + 4, f"{tick:g}", "end"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, "nodes of 8 GPUs", "middle"))
    parts.append(_text(LEFT - 8, TOP - 8, "ms", "end"))
    return parts


def _line(name: str, line: Mapping[int, float], number: int, x: _Axis, y: _Axis) -> list[str]:
    colour = COLOURS[number % len(COLOURS)]
    places = [(x.at(n), y.at(ms)) for n, ms in sorted(line.items()) if ms > 0]
    joined = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    at = TOP + 14 + 20 * number
    parts = [f'<polyline points="{joined}" fill="none" stroke="{colour}" stroke-width="2"/>']
    parts += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in places]
    parts.append(f'<circle cx="{WIDTH - RIGHT + 20}" cy="{at - 4}" r="4" fill="{colour}"/>')
    parts.append(_text(WIDTH - RIGHT + 30, at, name, "start"))
    return parts


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="#e2e5e8"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
