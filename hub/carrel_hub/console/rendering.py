"""Templates, with the functions for texts and pictures in them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import carrel
from carrel_hub import navigation
from carrel_hub.console import format as fmt
from carrel_hub.console import menu, words
from carrel_hub.console.pictures import gpu_use, palette, states, svg
from carrel_hub.console.pictures.quota_line import quota_line, quota_text
from carrel_hub.console.settings import Urls

HERE = Path(__file__).parent
STATIC = HERE / "static"
SHARED = Path(carrel.__file__).parent / "widgets" / "static"
"""Files of the notebook's views that pages use, too; which of them: ``SHARED_FILES``."""
SHARED_FILES = ("plots.js", "runs.js", "plots.css", "uPlot.iife.min.js", "uPlot.min.css")


def environment(
    urls: Urls, static_url: Callable[[str], str], shared_url: Callable[[str], str]
) -> Environment:
    """The template environment: everything is escaped, an unknown name is an error."""
    found = Environment(
        loader=FileSystemLoader([HERE / "templates", navigation.TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    helpers: dict[str, Any] = {
        "urls": urls,
        "static_url": static_url,
        "shared_url": shared_url,
        "fmt": fmt,
        "menu": menu,
        "navigation": navigation,
        "words": words,
        "svg": svg,
        "gpu_use": gpu_use,
        "badge": states.badge,
        "css_class": palette.css_class,
        "quota_line": quota_line,
        "quota_text": quota_text,
    }
    found.globals.update(helpers)
    found.filters["prose"] = words.prose
    return found
