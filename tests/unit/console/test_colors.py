"""Colours: told apart by all eyes, and text that can be read in light and dark (WCAG 2.2 AA)."""

import itertools
import re
from pathlib import Path

import pytest

import carrel_hub.console
from carrel_hub.console.pictures.palette import COLORS, css_class, style_rules
from carrel_hub.console.pictures.states import STATES

SHEET = (Path(carrel_hub.console.__file__).parent / "static" / "console.css").read_text()

Triple = tuple[float, float, float]
Matrix = tuple[Triple, Triple, Triple]
# How eyes without one kind of cone see linear RGB (Machado, Oliveira and Fernandes, 2009).
EYES: dict[str, Matrix] = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.01182, 0.04294, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.3039),
    ),
}
OKLAB_IN: Matrix = (
    (0.4122214708, 0.5363325363, 0.0514459929),
    (0.2119034982, 0.6806995451, 0.1073969566),
    (0.0883024619, 0.2817188376, 0.6299787005),
)
OKLAB_OUT: Matrix = (
    (0.2104542553, 0.7936177850, -0.0040720468),
    (1.9779984951, -2.4285922050, 0.4505937099),
    (0.0259040371, 0.7827717662, -0.8086757660),
)


def linear(color: str) -> Triple:
    parts = [int(color[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    r, g, b = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return r, g, b


def times(matrix: Matrix, vector: Triple) -> Triple:
    a, b, c = (sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix)
    return a, b, c


def oklab(light: Triple) -> Triple:
    long, middle, short = (max(x, 0.0) ** (1 / 3) for x in times(OKLAB_IN, light))
    return times(OKLAB_OUT, (long, middle, short))


def luminance(color: str) -> float:
    r, g, b = linear(color)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def mixed(front: str, share: float, back: str) -> str:
    pairs = [(int(front[i : i + 2], 16), int(back[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * f + (1 - share) * b):02x}" for f, b in pairs)


def properties(dark: bool) -> dict[str, str]:
    """The custom properties in force."""
    light_text, _, rest = SHEET.partition("@media (prefers-color-scheme: dark)")
    found = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6}|\d+%);", light_text))
    if dark:
        block = rest.partition("\n}\n")[0]
        found |= dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6}|\d+%);", block))
    return found


def test_the_twelve_are_told_apart_by_all_eyes() -> None:
    assert len(set(COLORS)) == 12
    for name, matrix in EYES.items():
        seen = [oklab(times(matrix, linear(color))) for color in COLORS]
        for (i, one), (j, other) in itertools.combinations(enumerate(seen), 2):
            distance = sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5
            assert distance > 0.1, f"{COLORS[i]} and {COLORS[j]} look alike to {name} eyes"


def test_the_style_sheet_has_the_colours_of_the_palette() -> None:
    assert style_rules() in SHEET
    assert css_class(13) == "p1"


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read(dark: bool) -> None:
    found = properties(dark)
    for text, ground in itertools.product(
        ("ink", "quiet", "accent", "failed"), ("ground", "surface", "raised")
    ):
        assert contrast(found[text], found[ground]) >= 4.5, (text, ground)
    assert contrast(found["accent"], found["on-accent"]) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("tone", sorted({state.tone for state in STATES.values()}))
def test_state_words_can_be_read_on_their_tint(tone: str, dark: bool) -> None:
    found = properties(dark)
    share = int(found["tint"].rstrip("%")) / 100
    tint = mixed(found[tone], share, found["surface"])
    assert contrast(found[tone], tint) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
def test_edges_of_controls_and_pictures_can_be_seen(dark: bool) -> None:
    found = properties(dark)
    for shape in ("edge", "waiting-fill", "active", "yielding", "accent", "failed"):
        for ground in ("ground", "surface", "raised"):
            assert contrast(found[shape], found[ground]) >= 3, (shape, ground)
