"""Static HTML and SVG of the views, for saved notebooks and web viewers.

Styles are inline, as these keep nothing else; there is no script.
"""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from carrel.widgets.experiment_state import ExperimentState

COLOURS: Final = {
    "pending": "#8a5a00",
    "starting": "#1559b3",
    "running": "#1559b3",
    "preempting": "#6a3fb5",
    "stopping": "#5f6368",
    "succeeded": "#1b7a3d",
    "failed": "#b3261e",
    "stopped": "#5f6368",
    "deleted": "#5f6368",
}


def state(phase: str, icon: str, word: str) -> str:
    """Icon and word in the state's colour."""
    colour = COLOURS.get(phase, "#5f6368")
    return f'<span style="color:{colour};font-weight:600">{escape(icon)} {escape(word)}</span>'


def job_card(job: Mapping[str, Any], lines: Iterable[str], pictures: str = "") -> str:
    """The card of a workload; ``pictures`` are HTML already."""
    where = f"{escape(job['project'])} · {escape(job['gpus'])}"
    shown = state(job["phase"], job["icon"], job["word"])
    parts = [f"<div>{shown} <b>{escape(job['name'])}</b> · {where}</div>"]
    if job["reason"]:
        parts.append(f"<div>{sentence(job['reason'])} {sentence(job['help'])}</div>")
    progress = job["progress"]
    if progress and progress["total"]:
        parts.append(
            f"<div>{progress['done']:,.0f} of {progress['total']:,.0f} "
            f"{escape(progress['unit'])}s</div>"
        )
    if job["members"]:
        members = (f"{one['index']}: {one['where']} {one['text']}" for one in job["members"])
        parts.append(f"<div>{escape('; '.join(members))}</div>")
    if pictures:
        parts.append(f"<div>{pictures}</div>")
    text = "\n".join(lines)
    if text:
        parts.append(f'<pre style="margin:4px 0">{escape(text)}</pre>')
    return "".join(parts)


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are HTML already."""
    head = "".join(f'<th style="text-align:left">{escape(column)}</th>' for column in columns)
    body = "".join(
        "<tr>" + "".join(f'<td style="text-align:left">{cell}</td>' for cell in row) + "</tr>"
        for row in rows
    )
    return (
        f"<table><caption style='text-align:left'>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def sentence(text: str) -> str:
    """A sentence with its `names` in bold."""
    parts = escape(text).split("`")
    return "".join(f"<b>{part}</b>" if index % 2 else part for index, part in enumerate(parts))


def escape(value: Any) -> str:
    """Text for HTML."""
    return html.escape(str(value))


WIDTH, HEIGHT, EDGE = 460.0, 140.0, 8.0
INK, BEST = "#1559b3", "#1b7a3d"


def history(search: ExperimentState) -> str:
    """A chart of trials: each value as a dot, the best so far as a line; empty without values."""
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
    """The chart of a metric; empty without two values."""
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
