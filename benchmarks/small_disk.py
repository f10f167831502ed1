"""A small disk of its own, which can be filled and emptied. Needs root."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

BLOCK: Final = b"\0" * 65536


class SmallDisk:
    """A mounted folder; ``fill`` takes all the room there is, ``empty`` gives it back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        """Take all room."""
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(BLOCK):
                pass

    def empty(self) -> None:
        """Give it back."""
        self._ballast.unlink(missing_ok=True)


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount one there, for as long as the block lasts."""
    folder.mkdir(mode=0o700)
    options = f"size={megabytes}m,mode=700,uid={os.getuid()}"
    subprocess.run(["/bin/mount", "-t", "tmpfs", "-o", options, "carrel-test", folder], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["/bin/umount", "--lazy", folder], check=True)
