"""A small Debian with Python, in place of the one that images are based on elsewhere."""

import hashlib
import subprocess
from pathlib import Path
from typing import Final

from k8s.cluster.waiting import NotReady

RELEASE: Final = "bookworm"
PACKAGES: Final = "python3,python3-venv,tini"
LEFT_OUT: Final = ("doc", "info", "lintian", "locale", "man")
BUILD_SECONDS: Final = 900.0


def name() -> str:
    """The name of the image, which changes with its contents."""
    content = " ".join((RELEASE, PACKAGES, *LEFT_OUT))
    return f"localhost/carrel-base:{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def archive(folder: Path) -> Path:
    """Write its files into a tar archive, unless they are there. Raises ``NotReady``."""
    to = folder / f"{name().rpartition(':')[2]}.tar"
    if to.exists():
        return to
    unfinished = to.with_suffix(".building.tar")
    without = [f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in LEFT_OUT]
    command = ["mmdebstrap", "--variant=minbase", f"--include={PACKAGES}", *without]
    done = subprocess.run(
        [*command, RELEASE, str(unfinished)],
        check=False,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
    )
    if done.returncode:
        raise NotReady(f"mmdebstrap failed: {done.stderr[-2000:]}")
    return unfinished.replace(to)
