"""The Python environments that ``carrel up --environment NAME=FOLDER`` offers to workspaces."""

import re
from collections.abc import Iterable
from pathlib import Path

from carrel_hub.config import OWN
from carrel_hub.up.trouble import Trouble

_NAME = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]{0,62}")


def offered(texts: Iterable[str]) -> dict[str, str]:
    """Name to prefix. Raises ``Trouble`` naming the one that cannot be offered."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, folder = text.partition("=")
        if not sign or not _NAME.fullmatch(name) or name == OWN or name in found:
            raise Trouble(
                f"--environment {text!r}: NAME=FOLDER is right, each NAME once, of letters, "
                f"digits, dots and hyphens, and not {OWN!r}."
            )
        prefix = Path(folder).expanduser().absolute()
        if not (prefix / "bin" / "python").exists():
            raise Trouble(
                f"--environment {text!r}: {prefix} is no Python environment: it has no bin/python."
            )
        found[name] = str(prefix)
    return found
