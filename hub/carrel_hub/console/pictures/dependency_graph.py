"""Work that waits for other work (`--after`) as a graph: predecessors left, what waits right.

A column holds what may run once the columns left of it have ended. Boxes are links with the word of
a state, so that no colour speaks alone. The lines also stand in sentences beside the picture.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from markupsafe import Markup

from carrel_hub.console.pictures.states import state_of
from carrel_hub.console.pictures.svg import element

WIDTH, HEIGHT = 172, 44
GAP_X, GAP_Y = 56, 14
MARGIN: Final = 4
LETTERS: Final = 20


@dataclass(frozen=True, slots=True)
class Box:
    """A workload in the graph.

    Attributes:
        address: of its page; empty for work that is gone.
        after: uids of what it starts after, each with its condition, ``ok`` or ``any``.
    """

    uid: str
    name: str
    phase: str
    address: str
    after: Mapping[str, str] = field(default_factory=dict)


def columns(boxes: Sequence[Box]) -> list[list[Box]]:
    """The boxes by the longest way to them; work can only name what is older, so there is one."""
    known = {one.uid: one for one in boxes}
    depth: dict[str, int] = {}

    def depth_of(uid: str) -> int:
        if uid not in depth:
            depth[uid] = 0  # for a stored circle, which none of ours can be
            above = [depth_of(one) for one in known[uid].after if one in known]
            depth[uid] = max(above, default=-1) + 1
        return depth[uid]

    found: list[list[Box]] = [[] for _ in range(1 + max(map(depth_of, known), default=-1))]
    for one in boxes:
        found[depth[one.uid]].append(one)
    return found


def dependency_graph(boxes: Sequence[Box], current: str) -> Markup:
    """The picture; nothing for a single piece of work. ``current``: the uid of the page's own."""
    if len(boxes) < 2:
        return Markup("")
    drawn = columns(boxes)
    places = {
        one.uid: (MARGIN + column * (WIDTH + GAP_X), MARGIN + row * (HEIGHT + GAP_Y))
        for column, several in enumerate(drawn)
        for row, one in enumerate(several)
    }
    lines = [
        _line(places[above], places[one.uid], condition)
        for one in boxes
        for above, condition in one.after.items()
        if above in places
    ]
    shapes = [_box(one, places[one.uid], current=one.uid == current) for one in boxes]
    width = 2 * MARGIN + len(drawn) * (WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + max(map(len, drawn)) * (HEIGHT + GAP_Y) - GAP_Y
    return element(
        "svg",
        *lines,
        *shapes,
        class_="dependency-graph",
        role="group",
        aria_label="What starts after what",
        width=width,
        height=height,
        viewBox=f"0 0 {width} {height}",
    )


def _line(above: tuple[int, int], below: tuple[int, int], condition: str) -> Markup:
    x1, y1 = above[0] + WIDTH, above[1] + HEIGHT // 2
    x2, y2 = below[0], below[1] + HEIGHT // 2
    middle = (x1 + x2) // 2
    kind = "graph-line" if condition == "ok" else "graph-line any"
    return element(
        "g",
        element("path", d=f"M{x1} {y1} C{middle} {y1} {middle} {y2} {x2 - 7} {y2}", class_=kind),
        element("path", d=f"M{x2} {y2} l-8 -4 v8 Z", class_="graph-tip"),
        aria_hidden="true",
    )


def _box(one: Box, place: tuple[int, int], *, current: bool) -> Markup:
    x, y = place
    state = state_of(one.phase)
    frame = "graph-box current" if current else "graph-box"
    shapes = [
        element("title", f"{one.name}: {state.word}"),
        element("rect", x=x, y=y, width=WIDTH, height=HEIGHT, rx=4, class_=frame),
        element("rect", x=x, y=y, width=5, height=HEIGHT, class_=f"span {state.tone}"),
        element("text", _short(one.name), x=x + 14, y=y + 18, class_="graph-name"),
        element("text", state.word, x=x + 14, y=y + 35, class_="graph-state"),
    ]
    if not one.address or current:
        return element("g", *shapes)
    return element("a", *shapes, href=one.address)


def _short(name: str) -> str:
    return name if len(name) <= LETTERS else f"{name[: LETTERS - 1]}…"
