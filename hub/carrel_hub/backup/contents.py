"""Contents of a backup: what of a state folder is copied, and what is left out.

Not: what users' work writes (homes, checkpoints, event folders), which are folders to copy with the
tools that are used for files; records and logs of tasks, which are those of processes; what every
start writes anew.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

MANIFEST: Final = "carrel-backup.json"
DATABASES: Final = ("carrel.sqlite", "hub/jupyterhub.sqlite", "jupyterhub.sqlite")
FILES: Final = (
    *("keys.json", "task-token.key", "ledger-secrets.key"),
    *("hub/accounts.json", "hub/ports.json", "hub/routes.yaml", "hub/acme.json"),
)
FOLDERS: Final = ("results", "engine/accounts")
BESIDE_DATABASES: Final = ("-wal", "-shm", "-journal")


def files_of(folder: Path) -> Iterator[str]:
    """Names of the plain files to copy, of those that are there."""
    for name in FILES:
        if (folder / name).is_file():
            yield name
    for name in FOLDERS:
        for path in sorted((folder / name).rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield path.relative_to(folder).as_posix()


def is_ours(name: str) -> bool:
    """Whether a file of this name may be in a backup."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return False
    in_folder = any(name.startswith(f"{folder}/") for folder in FOLDERS)
    return name in DATABASES or name in FILES or in_folder
