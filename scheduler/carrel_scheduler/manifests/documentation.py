"""What structures say about themselves: the first lines for the whole, one entry for a field."""

import inspect
import re
from functools import cache
from typing import Final

_ENTRY: Final = re.compile(r"^([a-z_][a-z0-9_, ]*): (.*)$")


@cache
def whole(struct: type) -> str:
    """The description of the structure itself."""
    return _clean(_parts(struct)[0])


@cache
def fields(struct: type) -> dict[str, str]:
    """Descriptions by field; of those that are described."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in _parts(struct)[1].splitlines():
        entry = _ENTRY.match(line)
        if entry is not None:
            names = [name.strip() for name in entry[1].split(",")]
            found |= dict.fromkeys(names, entry[2])
        elif names:
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return {name: _clean(text) for name, text in found.items()}


def _parts(struct: type) -> tuple[str, str]:
    text, _, attributes = inspect.cleandoc(struct.__doc__ or "").partition("Attributes:\n")
    return text.strip(), inspect.cleandoc(attributes)


def _clean(text: str) -> str:
    plain = " ".join(text.replace("``", "`").split())
    return plain[:1].upper() + plain[1:]
