"""What a task finds in its folder: files that came along and links to volumes."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.accounts import Account


def relative_path(text: str, field: str) -> PurePosixPath:
    """A path that stays inside its folder. Raises ``EngineError`` naming field and value."""
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in text:
        raise EngineError(f"{field}={text!r}: a relative path without '..' is right")
    return path


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write the files; parents are made."""
    for name, content in files.items():
        target = folder / relative_path(name, "files")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("x", encoding="utf-8", newline="") as file:
                file.write(content)
        except OSError as error:
            raise EngineError(f"files={name!r}: cannot be written: {error.strerror}") from error


def link_volumes(folder: Path, volumes: Sequence[tuple[str, str]]) -> None:
    """Link each volume whose destination differs from its source into the folder."""
    for source, destination in volumes:
        if destination in ("", source):
            continue
        target = folder / relative_path(destination.lstrip("/"), "volumes")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)
        except OSError as error:
            reason = f"volumes={destination!r}: cannot be linked: {error.strerror}"
            raise EngineError(reason) from error


def give(folder: Path, account: Account) -> None:
    """Make the account the owner of a folder that only we could write so far."""
    if account.shared:
        return
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            os.chown(Path(parent, name), account.uid, account.gid, follow_symlinks=False)
    os.chown(folder, account.uid, account.gid)


def own_folder(folder: Path, account: Account) -> Path:
    """A folder of the account inside one of ours, made on first use."""
    folder.mkdir(mode=0o700, exist_ok=True)
    if not account.shared and folder.stat(follow_symlinks=False).st_uid != account.uid:
        os.chown(folder, account.uid, account.gid, follow_symlinks=False)
    return folder
