"""The smallest builder of SVG that cannot be injected into: every text and attribute is escaped.

Shapes that need a project's colour carry the class ``p0`` to ``p11``; the style sheet holds the
colours, so one picture serves light and dark. Widths may be percentages: bars then stretch with
their place while patterns and heights stay.
"""

from markupsafe import Markup, escape

Attribute = str | int | float


def element(name: str, *children: str, **attributes: Attribute | None) -> Markup:
    """An SVG element. ``class_`` is its ``class``, ``_`` becomes ``-``, ``None`` is left out.

    Children that are ``Markup`` are taken as they are, plain strings are escaped.
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _plain(value))
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), written, inner)  # noqa: S704 - own names


def percent(part: float, whole: float) -> str:
    """``part`` of ``whole`` as a percentage for an attribute, kept inside 0 to 100."""
    if whole <= 0:
        return "0%"
    return f"{min(max(part / whole, 0.0), 1.0) * 100:.2f}".rstrip("0").rstrip(".") + "%"


def shared_definitions() -> Markup:
    """The patterns that all pictures of a page refer to; once per page.

    ``hatch`` strikes a filled shape through with the colour of the page: borrowed.
    """
    stripes = element(
        "pattern",
        element("path", d="M-1 1 L1 -1 M0 8 L8 0 M7 9 L9 7", class_="hatch-line"),
        id="hatch",
        width=8,
        height=8,
        patternUnits="userSpaceOnUse",
    )
    return element(
        "svg", element("defs", stripes), class_="definitions", width=0, height=0, aria_hidden="true"
    )


def _plain(value: Attribute) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
