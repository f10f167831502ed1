"""Where Traefik's program is: beside our Python, where its wheel puts it, or on the ``PATH``."""

import shutil
import sys
from pathlib import Path


class TraefikMissingError(Exception):
    """There is none."""


def find_traefik() -> str:
    """Its full path. Raises ``TraefikMissingError``."""
    beside = str(Path(sys.executable).with_name("traefik"))
    found = shutil.which(beside) or shutil.which("traefik")
    if found is None:
        raise TraefikMissingError("Traefik, the proxy, is not installed")
    return found
