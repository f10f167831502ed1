"""Unpacks layers into a folder: a program that sees nothing else and has no rights.

It is started in a sandbox without a network, opens the layers, makes the folder its root and
becomes an account that owns nothing. Wherever a link, a hard link or a name of the image leads, it
stays in that folder. Device files are left out, and bits that give the rights of others are
dropped. Reading archives is the standard library's; of layers, this program knows the files by
which one layer removes what is below it (whiteouts).
"""

import bz2
import gzip
import json
import lzma
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import BinaryIO, Final

from carrel_scheduler.engines.local.images.pull import NOBODY
from carrel_scheduler.engines.local.shim import linux

if sys.version_info >= (3, 14):
    import tarfile
else:
    from backports import zstd
    from backports.zstd import tarfile

    _LOADED = (zstd,)  # what is needed later is loaded while it can be
_FORMATS: Final = (bz2, gzip, lzma)
WHITEOUT: Final = ".wh."
OPAQUE: Final = ".wh..wh..opq"
MOST_ENTRIES: Final = 2_000_000


class BadLayer(Exception):  # noqa: N818 - an outcome to tell
    """A layer cannot be unpacked; the message has the cause."""


class Unpacking:
    """Applies layers to the present root.

    Args:
        most_bytes: so much may all files have together.
    """

    def __init__(self, most_bytes: int) -> None:
        self._left, self._entries = most_bytes, 0

    def apply(self, layer: BinaryIO) -> None:
        """Apply one layer. Raises ``BadLayer``."""
        fresh: set[str] = set()
        with tarfile.open(fileobj=layer, mode="r:*", errorlevel=1) as archive:
            for member in archive:
                self._count(member)
                path = _inside(member.name)
                if path.name.startswith(WHITEOUT):
                    _remove_below(path, fresh)
                elif str(path) != "/" and not member.isdev():
                    _make_room(path, member)
                    archive.extract(member, "/", numeric_owner=True, filter=_safe)
                    fresh.update(map(str, (path, *path.parents)))

    def _count(self, member: tarfile.TarInfo) -> None:
        self._left -= member.size if member.isreg() else 0
        self._entries += 1
        if self._left < 0 or self._entries > MOST_ENTRIES:
            raise BadLayer("it is larger than the limit here when it is unpacked")


def _safe(member: tarfile.TarInfo, _: str) -> tarfile.TarInfo:
    """The member without owners and set-id bits; the owner can read and enter it."""
    mode = member.mode & 0o1777 | (stat.S_IRWXU if member.isdir() else stat.S_IRUSR | stat.S_IWUSR)
    linked = str(_inside(member.linkname)).lstrip("/") if member.islnk() else member.linkname
    name = str(_inside(member.name)).lstrip("/")
    return member.replace(
        name=name,
        linkname=linked,
        mode=mode,
        uid=NOBODY,
        gid=NOBODY,
        uname="",
        gname="",
        deep=False,
    )


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath("/", name.lstrip("/"))
    if ".." in path.parts or "\0" in name:
        raise BadLayer(f"{name!r} leads out of the image")
    return path


def _make_room(path: PurePosixPath, member: tarfile.TarInfo) -> None:
    """Remove an existing entry, unless both are folders, which are merged."""
    try:
        there = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(there.st_mode):
        if not member.isdir():
            shutil.rmtree(path)
    else:
        os.unlink(path)  # noqa: PTH108 - a pure path


def _remove_below(path: PurePosixPath, fresh: set[str]) -> None:
    """Remove the entry of a whiteout from the layers below only."""
    for hidden in list(_hidden(path)):
        if hidden in fresh:
            continue
        if os.path.isdir(hidden) and not os.path.islink(hidden):  # noqa: PTH112, PTH114
            shutil.rmtree(hidden)
        elif os.path.lexists(hidden):
            os.unlink(hidden)  # noqa: PTH108


def _hidden(path: PurePosixPath) -> Iterator[str]:
    if path.name == OPAQUE:
        if os.path.isdir(path.parent):  # noqa: PTH112
            yield from (entry.path for entry in os.scandir(path.parent))
    elif name := path.name.removeprefix(WHITEOUT).lstrip("/"):
        if name in (".", ".."):
            raise BadLayer(f"{path} removes no file")
        yield str(path.parent / name)


def confine(root: str) -> None:
    """Make a folder the root of this process, and give up all rights."""
    os.chroot(root)
    os.chdir("/")
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    linux.prctl(linux.PR_SET_NO_NEW_PRIVS, 1)
    os.umask(0o022)
    sys.path.clear()  # what is loaded from now on would be the image's


def main(arguments: Sequence[str]) -> None:
    """Unpack; the arguments are the folder, the limit in bytes, and the layers' files."""
    root, most_bytes, *names = arguments
    layers = [open(name, "rb") for name in names]  # noqa: PTH123, SIM115 - kept open
    confine(root)
    answer: dict[str, str] = {}
    try:
        unpacking = Unpacking(int(most_bytes))
        for layer in layers:
            unpacking.apply(layer)
    except (BadLayer, OSError, tarfile.TarError, EOFError, ValueError, KeyError) as error:
        answer = {"failure": "broken", "text": f"a layer cannot be unpacked: {error}"}
    sys.stdout.write(f"{json.dumps(answer)}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
