"""Mount points of volumes, at a path of the machine or of an image that a user chose.

On the machine's own root a mount point that is missing is made in a copy of the folder above it:
an empty file system in which every entry of that folder is bound again. Nothing is made on the
machine. Only root may change what lies above a mount point, so that it cannot be exchanged.

An image may hold links that lead anywhere, and bubblewrap makes missing mount points as root. So
each path is resolved within the image before, and bubblewrap gets one without links.
"""

import os
import stat

from carrel_scheduler.engines.local.shim import linux

PROGRAMS = frozenset(
    ("/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin")
) | {"/sys", "/usr"}
KERNEL = ("/dev/", "/proc/", "/sys/")
MOST_ENTRIES = 1000


class BadMountPoint(Exception):  # noqa: N818 - an outcome to handle
    """The mount point cannot be used; the message has the cause."""


def check_allowed(target: str) -> None:
    """Raise ``BadMountPoint`` for folders that hold the programs of a task or the kernel's own."""
    if os.path.normpath(target) in PROGRAMS or f"{target}/".startswith(KERNEL):
        raise BadMountPoint("holds what programs need; a folder of its own, as /data, is right")


def on_machine(target: str) -> tuple[str, str]:
    """Find where a path of the machine leads.

    Returns:
        The path without links, and the folder to be made anew for it; empty if there is none.

    Raises ``BadMountPoint``.
    """
    check_allowed(target)
    real = os.path.realpath(target)
    check_allowed(real)
    above = real
    while not os.path.lexists(above):
        above = os.path.dirname(above)  # noqa: PTH120 - pathlib is slow to load
    point = real if above == real else f"{above.rstrip('/')}/{real[len(above) :].lstrip('/')}"
    if not root_alone_changes(f"{above.rstrip('/')}/x" if above != real else real):
        raise BadMountPoint(
            "others than root can change what lies above it; a path of which only the last parts"
            " are missing in a folder of root's, as /data, is right"
        )
    if above == real:
        return real, ""
    if not os.path.isdir(above):  # noqa: PTH112 - pathlib is slow to load
        raise BadMountPoint(f"{above} is no folder")
    return point, above


def remake(folder: str) -> list[str]:
    """The arguments of bubblewrap that replace a folder by a copy.

    Raises ``BadMountPoint`` for a folder with too many entries.
    """
    mode = stat.S_IMODE(os.stat(folder).st_mode) & 0o777  # noqa: PTH116 - pathlib is slow to load
    options = [] if folder == "/" else ["--perms", f"{mode:04o}", "--tmpfs", folder]
    entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    if len(entries) > MOST_ENTRIES:
        raise BadMountPoint(f"{folder} has more than {MOST_ENTRIES} entries; make the folder first")
    for entry in entries:
        if entry.is_symlink():
            options += ["--symlink", os.readlink(entry.path), entry.path]  # noqa: PTH115
        elif f"{entry.path}/" not in KERNEL[:2]:
            options += ["--bind", entry.path, entry.path]
    return options


def in_image(root: int, target: str) -> str:
    """Resolve a path within an image whose root is open at a descriptor.

    Returns the path without links; what is missing of it is as it was named. Raises
    ``BadMountPoint`` for a path through a link that leads nowhere or through a file.
    """
    base = os.readlink(f"/proc/self/fd/{root}")  # noqa: PTH115 - pathlib is slow to load
    parts = [part for part in os.path.normpath(target).split("/") if part]
    for known in range(len(parts), -1, -1):
        try:
            found = linux.open_path("/".join(parts[:known]) or ".", linux.RESOLVE_IN_ROOT, root)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise BadMountPoint(f"the image's own path cannot be used: {error.strerror}") from error
        try:
            real = os.readlink(f"/proc/self/fd/{found}")  # noqa: PTH115 - pathlib is slow to load
            _check_missing(found, parts[known:])
        finally:
            os.close(found)
        return "/".join((real[len(base) :], *parts[known:])) or "/"
    raise BadMountPoint("the image has no root")


def _check_missing(above: int, missing: list[str]) -> None:
    """Refuse what bubblewrap would not make, or would make elsewhere."""
    if not missing:
        return
    if not stat.S_ISDIR(os.fstat(above).st_mode):
        raise BadMountPoint("lies inside a file of the image")
    try:
        os.lstat(f"/proc/self/fd/{above}/{missing[0]}")
    except FileNotFoundError:
        return
    raise BadMountPoint("goes through a link of the image that leads nowhere")


def root_alone_changes(path: str, trusted: tuple[int, ...] = (0,)) -> bool:
    """Whether nobody else can put something in the place of a path, or of a folder above it."""
    folder = path
    while folder:
        folder = folder.rpartition("/")[0]
        try:
            facts = os.lstat(folder or "/")
        except FileNotFoundError:
            continue  # whoever could make it could change the folder above
        except OSError:
            return False
        shared = facts.st_mode & 0o022 and not facts.st_mode & stat.S_ISVTX
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid not in trusted or shared:
            return False
    return True
