"""The twelve colours of projects: told apart also by eyes that see fewer colours.

Chosen by search for the largest smallest distance (OKLab) among all pairs as seen by normal,
protan, deutan and tritan eyes. Fills always carry an outline and a name beside them, so a colour
never speaks alone. A project keeps the number it got at its creation.
"""

from typing import Final

COLORS: Final = (
    "#2c6eac",
    "#c46f35",
    "#b1b028",
    "#63395b",
    "#ee84a0",
    "#7ab4ef",
    "#453297",
    "#deca82",
    "#8e0b0f",
    "#8d565b",
    "#3de5e0",
    "#5d86f2",
)


def css_class(color: int) -> str:
    """The class of a project's colour number; numbers beyond the set start again."""
    return f"p{color % len(COLORS)}"


def style_rules() -> str:
    """The rules of the style sheet that give ``p0`` to ``p11`` their colours."""
    return "\n".join(f".p{index} {{ --project: {color}; }}" for index, color in enumerate(COLORS))
