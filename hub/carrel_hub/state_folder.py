"""The one folder that Carrel writes to on this machine: where it is, and whether it is in use."""

import fcntl
import os
from pathlib import Path
from typing import Final

LOCK: Final = "up.lock"


def default_state_dir() -> Path:
    """``$XDG_STATE_HOME/carrel``, else ``~/.local/state/carrel``."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "carrel"


def is_running(folder: Path) -> bool:
    """Whether a Carrel runs with this state folder."""
    try:
        with (folder / LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False
