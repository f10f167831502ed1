"""Folders of a task: its own with files and volumes, and those of event files.

``events/<workload>/`` belongs to the job's user and is readable by others, but lies below the
engine's closed state folder: only a task whose mounts show it gets there. Parts of composite work
write to ``events/<owner>/<part>/``. Every folder above a user's own is the engine's, so that nobody
can put a link in the place of one that will be shown to others.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from carrel_scheduler.engines.contract import EngineError
from carrel_scheduler.engines.local.accounts import Account

READABLE: Final = 0o755
MOST_PARTS: Final = 2
_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def relative_path(text: str, field: str) -> PurePosixPath:
    """A path that stays inside its folder. Raises ``EngineError`` naming field and value."""
    path = PurePosixPath(text)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\0" in text:
        raise EngineError(f"{field}={text!r}: a relative path without '..' is right")
    return path


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files with the folders above them."""
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
    """(source, destination in the task's folder or empty) of each volume.

    Raises ``EngineError`` for a destination inside another one or inside a file.
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
    """Make the folders above the volumes' destinations, or links at them (``linked``)."""
    for source, place in list(destinations(volumes, files)):
        if place:
            target = folder / place
            target.parent.mkdir(parents=True, exist_ok=True)
            if linked:
                target.symlink_to(source)


def give(folder: Path, account: Account) -> None:
    """Make the account the owner of a folder that only the engine could write so far."""
    if account.shared:
        return
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            os.chown(Path(parent, name), account.uid, account.gid, follow_symlinks=False)
    os.chown(folder, account.uid, account.gid)


def own_folder(root: Path, name: str, account: Account, mode: int = 0o700) -> Path:
    """Make a folder of the account inside one of the engine, unless it is there."""
    return make_folder(root, name, mode, None if account.shared else (account.uid, account.gid))


def make_folder(root: Path, name: str, mode: int, owner: tuple[int, int] | None) -> Path:
    """Make a folder by descriptor, unless it is there; the target of a link is never changed.

    Args:
        root: folder of the engine.
        name: of the new folder.
        mode: its permissions, set while the engine owns it.
        owner: (uid, gid) of its owner; ``None`` for the engine.
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


def events_folder(root: Path, where: str, account: Account) -> Path:
    """Make the folder of a job's event files, unless it is there.

    Args:
        root: of all event files.
        where: below it; one name, or two for a part.
        account: the job's.
    """
    *above, last = _parts(where)
    folder = root
    for part in above:
        folder = make_folder(folder, part, READABLE, None)
    return own_folder(folder, last, account, READABLE)


def readable_events(root: Path, places: Iterable[str]) -> list[Path]:
    """Event folders of other workloads that a task may read, made if they are missing.

    Of a part the folder of the whole workload.
    """
    return [make_folder(root, _parts(where)[0], READABLE, None) for where in places]


def _parts(where: str) -> tuple[str, ...]:
    parts = PurePosixPath(where).parts
    if not 0 < len(parts) <= MOST_PARTS or not all(map(_PART.fullmatch, parts)):
        raise EngineError(f"events={where!r}: the uid of a workload, or `uid/part`, is right")
    return parts
