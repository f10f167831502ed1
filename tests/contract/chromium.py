"""The browser of the tests: Chromium without a window.

The build that has no window at all takes a third less processor time for a page than the usual one,
which is taken where the other is not installed.
"""

import shutil
from typing import Final

NAMES: Final = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
FLAGS: Final = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--no-first-run",
    "--no-sandbox",
]


def program() -> str:
    """Where it is; ``AssertionError`` when there is none."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found, "no Chromium: `make test` installs it, or apt install chromium-headless-shell"
    return found
