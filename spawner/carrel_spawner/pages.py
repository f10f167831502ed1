"""The spawner's own pieces of HTML, rendered from templates with every value escaped."""

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from carrel_spawner import words

_NAME: Final = re.compile(r"`([^`]+)`")


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(plain=words.plain, said=said)
    return environment


def said(sentence: str) -> Markup:
    """A sentence with its ``names`` set as such; everything else is escaped."""
    return Markup(_NAME.sub(r"<code>\1</code>", str(escape(sentence))))  # noqa: S704 - escaped


def render(template: str, **facts: Any) -> str:
    """A template of this package with these facts."""
    return _templates().get_template(template).render(**facts)
