"""Settings of this machine's pip for the pip inside a build.

It is handed in as a secret: mounted while a step runs, in no layer of an image.
"""

import ast
import subprocess
import sys
from pathlib import Path
from typing import Final

CARRIED: Final = frozenset(
    {
        "cert",
        "extra-index-url",
        "find-links",
        "index-url",
        "no-index",
        "proxy",
        "timeout",
        "trusted-host",
    }
)


def settings() -> dict[str, str]:
    """The settings of pip that a build needs too, from files and the environment."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, str] = {}
    for line in told.splitlines():
        option, _, value = line.partition("=")
        name = option.rpartition(".")[2]
        if name in CARRIED:
            found[name] = str(ast.literal_eval(value))
    return found


def write(to: Path) -> Path:
    """Write them as a configuration file, readable by nobody else."""
    lines = [f"{name} = {' '.join(value.split())}\n" for name, value in settings().items()]
    to.touch(mode=0o600)
    to.write_text("[global]\n" + "".join(lines))
    return to


def mounts() -> list[Path]:
    """Folders of this machine that the settings name: of certificates, of ready packages."""
    found = settings()
    places = [Path(value) for value in found.get("find-links", "").split()]
    if "cert" in found:
        places.append(Path(found["cert"]).parent)
    return [place for place in places if place.is_absolute() and place.is_dir()]
