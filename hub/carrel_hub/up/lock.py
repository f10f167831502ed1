"""One Carrel for each state folder: a lock that ends with its process, whatever ends it."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from carrel_hub.state_folder import LOCK
from carrel_hub.up.trouble import Trouble


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the folder's lock. Raises ``Trouble`` when another process has it."""
    descriptor = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
    with os.fdopen(descriptor, "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = file.read().strip() or "unknown"
            raise Trouble(
                f"Carrel runs already with the state folder {folder} (process {holder}); "
                f"stop it first, or choose another with --state-dir."
            ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
