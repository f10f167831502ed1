"""A small line chart of one reported metric, with axes and round ticks."""

import math
from itertools import pairwise

from markupsafe import Markup

from carrel.models import MetricPoint
from carrel_hub.console import format as fmt
from carrel_hub.console.svg import element

WIDTH, HEIGHT = 340, 170
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 10, 26


def line_chart(name: str, points: list[MetricPoint]) -> Markup:
    """The curve of ``name`` over its steps; values that are not finite leave gaps."""
    finite = [point for point in points if math.isfinite(point.value)]
    if not finite:
        return Markup("")
    steps, values = [point.step for point in points], [point.value for point in finite]
    across = _Axis(min(steps), max(steps), _LEFT, WIDTH - _RIGHT)
    upward = _Axis(min(values), max(values), HEIGHT - _BOTTOM, _TOP)
    last = finite[-1]
    spoken = (
        f"{name}: {fmt.measured(last.value)} at step {last.step:,}, between"
        f" {fmt.measured(min(values))} and {fmt.measured(max(values))}"
    )
    return element(
        "svg",
        element("title", spoken),
        *_grid(across, upward),
        *_curves(points, across, upward),
        element("circle", cx=across.at(last.step), cy=upward.at(last.value), r=3, class_="dot"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        class_="chart",
        role="img",
    )


class _Axis:
    """Maps values between ``low`` and ``high`` to pixels; a single value lies in the middle."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        if low == high:
            margin = abs(low) / 2 or 0.5
            low, high = low - margin, high + margin
        self.low, self.high, self.start, self.end = low, high, start, end

    def at(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, wanted: int) -> list[float]:
        """About ``wanted`` round values inside the axis, at least two."""
        rough = (self.high - self.low) / wanted
        magnitude = 10.0 ** math.floor(math.log10(rough))
        nearest = min((1, 2, 5, 10), key=lambda m: abs(math.log(m * magnitude / rough)))
        step = nearest * magnitude
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [index * step for index in range(first, last + 1)]


def _grid(across: _Axis, upward: _Axis) -> list[Markup]:
    shapes = []
    for value in upward.ticks(4):
        y = upward.at(value)
        shapes.append(element("line", x1=_LEFT, x2=WIDTH - _RIGHT, y1=y, y2=y, class_="grid"))
        shapes.append(_label(_LEFT - 6, y + 4, value, "end"))
    shapes += [
        _label(across.at(value), HEIGHT - 8, value, "middle")
        for value in across.ticks(4)
        if value == int(value)
    ]
    shapes.append(
        element(
            "path",
            d=f"M{_LEFT} {_TOP}V{HEIGHT - _BOTTOM}H{WIDTH - _RIGHT}",
            class_="axis",
        )
    )
    return shapes


def _label(x: float, y: float, value: float, anchor: str) -> Markup:
    # Ticks are multiples of a round step: this removes what binary fractions add to them.
    return element("text", fmt.measured(round(value, 12)), x=x, y=y, text_anchor=anchor)


def _curves(points: list[MetricPoint], across: _Axis, upward: _Axis) -> list[Markup]:
    pieces: list[list[MetricPoint]] = [[]]
    for point in points:
        if math.isfinite(point.value):
            pieces[-1].append(point)
        elif pieces[-1]:
            pieces.append([])
    return [
        element("path", d=_path(piece, across, upward), class_="curve")
        for piece in pieces
        if len(piece) > 1
    ]


def _path(piece: list[MetricPoint], across: _Axis, upward: _Axis) -> str:
    start = f"M{across.at(piece[0].step):.1f} {upward.at(piece[0].value):.1f}"
    # A step that goes back is a resumed attempt: the line breaks there instead of running back.
    return start + "".join(
        f"{'L' if after.step >= before.step else 'M'}"
        f"{across.at(after.step):.1f} {upward.at(after.value):.1f}"
        for before, after in pairwise(piece)
    )
