"""What a task finds in its folder: files that came along, and the places of its volumes."""

import contextlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
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


def destinations(
    volumes: Sequence[tuple[str, str]], files: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """(source, place in the task's folder or empty) of each volume.

    Raises ``EngineError`` for a place that is not of its own: one inside another, or of a file.
    """
    taken = {relative_path(name, "files").parts for name in files}
    for source, destination in volumes:
        if destination in ("", source):
            yield source, ""
            continue
        place = relative_path(destination.lstrip("/"), "volumes").parts
        for other in taken:
            shorter = min(len(place), len(other))
            if place[:shorter] == other[:shorter]:
                raise EngineError(
                    f"volumes={destination!r}: lies in the same place as {'/'.join(other)!r};"
                    " a destination beside those of the other volumes and files is right"
                )
        taken.add(place)
        yield source, "/".join(place)


def place_volumes(
    folder: Path, volumes: Sequence[tuple[str, str]], files: Iterable[str], *, linked: bool
) -> None:
    """Make room for volumes in a folder that only we can write to, or link them into it."""
    for source, place in list(destinations(volumes, files)):
        if place:
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            if linked:
                target.symlink_to(source)


def give(folder: Path, account: Account) -> None:
    """Make the account the owner of a folder that only we could write so far."""
    if account.shared:
        return
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            os.chown(Path(parent, name), account.uid, account.gid, follow_symlinks=False)
    os.chown(folder, account.uid, account.gid)


def own_folder(root: Path, name: str, account: Account, mode: int = 0o700) -> Path:
    """A folder of the account inside one of ours, made on first use."""
    return make_folder(root, name, mode, None if account.shared else (account.uid, account.gid))


def make_folder(root: Path, name: str, mode: int, owner: tuple[int, int] | None) -> Path:
    """A folder inside one of ours, by descriptor: what a link leads to is never changed.

    Args:
        root: of ours.
        name: of the folder, made on first use.
        mode: that it gets as long as it is ours.
        owner: who gets it; ``None`` leaves it ours.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    with contextlib.ExitStack() as stack:
        try:
            above = os.open(root, flags)
            stack.callback(os.close, above)
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=above)
            descriptor = os.open(name, flags, dir_fd=above)
            stack.callback(os.close, descriptor)
        except NotADirectoryError as error:  # also what a link is
            raise EngineError(f"{root / name} is no folder; delete it") from error
        facts = os.fstat(descriptor)
        if facts.st_uid == os.geteuid() and stat.S_IMODE(facts.st_mode) != mode:
            os.fchmod(descriptor, mode)
        if owner is not None and facts.st_uid != owner[0]:
            os.fchown(descriptor, *owner)
    return root / name
