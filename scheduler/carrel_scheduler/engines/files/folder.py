"""Files below a folder that its owner may change at any time: no link is ever followed.

Every part of a path is opened by the descriptor of the folder above it, so that a folder which is
exchanged for a link meanwhile leads nowhere. A file is read only when it is a regular one of the
folder's own account: a hard link to others' files is none.

Needs Python alone: on a cluster this text is the program that runs beside the project's storage,
``python -c TEXT VERB ARGUMENTS``. It ends with 44 for a file that is not there.
"""

import contextlib
import json
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PIECE_BYTES = 2**18
HIDDEN = (".unfinished-", ".new-")
MISSING = 44
TOO_MANY = 45


def open_folder(root: str, path: str = "") -> int:
    """The descriptor of a folder below the root. Raises ``OSError``."""
    above = os.open(root, FOLDER)
    for part in [part for part in path.split("/") if part]:
        try:
            below = os.open(part, FOLDER, dir_fd=above)
        finally:
            os.close(above)
        above = below
    return above


def open_file(root: str, path: str) -> int:
    """The descriptor of a file below the root. Raises ``OSError``, also for one of others."""
    if {"..", ""} & set(path.split("/")):
        raise FileNotFoundError(path)
    folder, _, name = path.rpartition("/")
    above = open_folder(root, folder)
    try:
        found = os.open(name, FILE, dir_fd=above)
    finally:
        os.close(above)
    if not _is_own(os.fstat(found), Path(root).stat().st_uid):
        os.close(found)
        raise FileNotFoundError(path)
    return found


def _is_own(facts: os.stat_result, owner: int) -> bool:
    return stat.S_ISREG(facts.st_mode) and facts.st_uid == owner


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def listing(root: str, most: int) -> list[tuple[str, int, float]]:
    """Path, size and time of each file below the root; raises ``OverflowError`` beyond ``most``."""
    found: list[tuple[str, int, float]] = []
    try:
        top = open_folder(root)
    except FileNotFoundError:
        return found
    try:
        owner = os.fstat(top).st_uid
        for folder, names, files, here in os.fwalk(".", dir_fd=top):
            names[:] = sorted(name for name in names if not name.startswith(HIDDEN))
            for name in sorted(files):
                with contextlib.suppress(FileNotFoundError):
                    facts = os.stat(name, dir_fd=here, follow_symlinks=False)
                    path = os.path.normpath(f"{folder}/{name}")
                    if _is_own(facts, owner) and _is_text(path):
                        found.append((path, facts.st_size, facts.st_mtime))
            if len(found) > most:
                raise OverflowError(root)
    finally:
        os.close(top)
    return found


def size(root: str) -> int:
    """The size of all files below the root in bytes; missing ones are skipped."""
    total = 0
    for _, _, files, here in os.fwalk(root):
        for name in files:
            with contextlib.suppress(OSError):
                total += os.stat(name, dir_fd=here, follow_symlinks=False).st_size
    return total


def pieces(descriptor: int) -> Iterator[bytes]:
    """The content of a file in chunks; closes its descriptor."""
    with os.fdopen(descriptor, "rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def copy(root: str, path: str, target: str) -> int:
    """Copy a file or folder into a new folder ``target``, which everybody may read.

    Args:
        root: of what is copied.
        path: below it; empty: everything.
        target: path of the new folder; what is copied keeps its last name in it.

    Returns:
        How many bytes.

    Raises:
        FileNotFoundError: there is nothing of that path.
        FileExistsError: the target is there.
    """
    if os.path.lexists(target):
        raise FileExistsError(target)
    wanted = [one for one in listing(root, sys.maxsize) if _lies_in(one[0], path)]
    if not wanted:
        raise FileNotFoundError(path)
    fresh = tempfile.mkdtemp(prefix=".new-", dir=Path(target).parent)
    above = path.rpartition("/")[0] or "."
    try:
        total = sum(
            _copy_file(root, one, os.path.relpath(one, above), fresh) for one, _, _ in wanted
        )
        _settle(fresh)
        Path(fresh).rename(target)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return total


def _lies_in(path: str, folder: str) -> bool:
    return not folder or path == folder or path.startswith(f"{folder}/")


def _copy_file(root: str, path: str, name: str, target: str) -> int:
    source = open_file(root, path)
    place = Path(target, name)
    place.parent.mkdir(parents=True, exist_ok=True)
    total = 0
    with place.open("wb") as out:
        for piece in pieces(source):
            out.write(piece)
            total += len(piece)
    return total


def _settle(folder: str) -> None:
    """Make a copy readable for everybody and read-only, except for its owner's folders."""
    for here, _, files in os.walk(folder):
        Path(here).chmod(0o755)
        for name in files:
            Path(here, name).chmod(0o444)


def run(verb: str, *arguments: str) -> Iterator[bytes]:
    """The answer to a command of the program."""
    root, *rest = arguments
    if verb == "read":
        yield from pieces(open_file(root, *rest))
    elif verb == "list":
        yield json.dumps(listing(root, int(*rest))).encode()
    elif verb == "copy":
        Path(rest[-1]).parent.mkdir(parents=True, exist_ok=True)
        yield str(copy(root, *rest)).encode()
    elif verb == "names":
        found = Path(root).iterdir() if Path(root).is_dir() else ()
        yield json.dumps([path.name for path in found]).encode()
    elif verb == "size":
        yield str(size(root)).encode()
    elif verb == "remove":
        shutil.rmtree(root)


def main(arguments: list[str]) -> int:
    """Run one command and write its answer to the standard output; on a cluster."""
    try:
        for piece in run(*arguments):
            sys.stdout.buffer.write(piece)
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OverflowError:
        return TOO_MANY
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
