"""Real control groups of version 2, on a machine whose own ones are of another version, too."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def mounted_groups(folder: Path, *names: str) -> Iterator[Path]:
    """The machine's groups of version 2, mounted at a folder, with new groups of these names.

    Only root can do that.
    """
    folder.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", folder], check=True)
    try:
        for name in names:
            (folder / name).mkdir(parents=True)
        yield folder
    finally:
        for name in names:
            top = folder / Path(name).parts[0]
            for group in sorted((top, *top.glob("**/")), reverse=True):
                with suppress(OSError):  # processes of a test that failed are in it
                    group.rmdir()
        subprocess.run(["umount", "--lazy", folder], check=True)
