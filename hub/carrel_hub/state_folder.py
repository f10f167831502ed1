"""The one folder that Carrel writes to on this machine: where it is, and whether it is in use."""

import fcntl
import os
import tempfile
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


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file as a whole and durably by one that only its owner may read."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-")  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
