"""The spawner's own pieces of HTML, rendered from templates with every value escaped."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from carrel_spawner import words


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = words.plain
    return environment


def render(template: str, **facts: Any) -> str:
    """A template of this package with these facts."""
    return _templates().get_template(template).render(**facts)
