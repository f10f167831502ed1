"""A small disk of its own for a test, which can be filled and emptied."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

BLOCK = b"\0" * 65536


class SmallDisk:
    """A mounted folder; ``fill`` takes all room there is, ``empty`` gives it back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(BLOCK):
                pass

    def empty(self) -> None:
        self._ballast.unlink()


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Mount it there; whoever uses it leaves nothing open."""
    folder.mkdir(mode=0o700)
    options = f"size={megabytes}m,mode=700,uid={os.getuid()}"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "carrel-test", folder], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
