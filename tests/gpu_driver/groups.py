"""Real control groups of version 2, on a machine whose own ones are of another version, too."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def mounted_groups(folder: Path, *names: str) -> Iterator[Path]:
    """The machine's groups of version 2, mounted at a folder, with new groups of these names.

    Only root can do that. The groups have to be empty again at the end.
    """
    folder.mkdir()
    subprocess.run(["mount", "-t", "cgroup2", "none", folder], check=True)
    try:
        for name in names:
            (folder / name).mkdir(parents=True)
        yield folder
        for name in names:
            group = folder / name
            while group != folder:
                group.rmdir()
                group = group.parent
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
