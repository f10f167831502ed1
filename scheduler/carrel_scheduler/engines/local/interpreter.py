"""How to run a part of the shim with our own Python."""

import sys
from pathlib import Path
from typing import Final

import carrel_scheduler

SOURCES: Final = Path(carrel_scheduler.__file__).parent.parent
SHIM: Final = "carrel_scheduler.engines.local.shim"


def shim_command(module: str, *descriptors: int) -> list[str]:
    """Run ``main`` of a shim module, told descriptors as its arguments."""
    code = f"from {SHIM}.{module} import main; main()"
    return [*isolated(code), *map(str, descriptors)]


def isolated(code: str) -> list[str]:
    """Run code that may import the shim: deaf to the environment, without site-packages."""
    found = f"import sys; sys.path.insert(0, {str(SOURCES)!r})"
    return [sys.executable, "-I", "-S", "-c", f"{found}; {code}"]
