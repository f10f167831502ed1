"""A task's own view of the file system: foreign folders hidden, its own ones shown again.

Whatever the account could not pass through on its way to a folder that it needs (say ``/root``,
mode 0700, around a virtual environment) is covered by an empty file system, and just the needed
folders are put back at their old paths. Everything else keeps its own permissions.
"""

import os

from carrel_scheduler.engines.local.shim import linux

_EMPTY = "mode=0755,size=1m"
_HARD = linux.MS_NOSUID | linux.MS_NODEV


def make_view(
    veils: list[tuple[str, str]],
    binds: list[tuple[str, str, bool]],
    shared_memory: str = "",
) -> None:
    """Leave the shared namespace and mount; raises ``OSError`` saying what failed."""
    if not veils and not binds and not shared_memory:
        return
    linux.unshare_mounts()
    # A slave still follows the machine's own mounts and unmounts, and passes none back.
    linux.mount("", "/", None, linux.MS_REC | linux.MS_SLAVE)
    if shared_memory:
        linux.mount("shm", "/dev/shm", "tmpfs", _HARD, shared_memory)  # noqa: S108 - the kernel's
    # Everything is held before anything is hidden, and mounted from the outside in: a folder that
    # is shown may have a hidden one in it, with shown ones in that.
    steps = [(path, _hold(source) if source else -1, False) for path, source in veils]
    steps += [(target, _hold(source), read_only) for source, target, read_only in binds]
    for target, source, read_only in sorted(steps, key=_outermost_first):
        if source < 0:
            linux.mount("tmpfs", target, "tmpfs", _HARD, _EMPTY)
            continue
        _make_mount_point(source, target)
        _bind(source, target, read_only=read_only)
    for path, behind in veils:
        if not behind:
            linux.mount("", path, None, linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | _HARD)


def _outermost_first(step: tuple[str, int, bool]) -> int:
    return step[0].rstrip("/").count("/")


def _hold(path: str) -> int:
    """Pin a folder before it disappears from view; refuses a path that leads elsewhere by now."""
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    found = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - pathlib is slow to load
    if found != path:
        raise OSError(0, f"{path} became a link to {found}")
    return descriptor


def _bind(source: int, target: str, *, read_only: bool) -> None:
    linux.mount(f"/proc/self/fd/{source}", target, None, linux.MS_BIND | linux.MS_REC)
    if read_only:
        flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | _HARD
        linux.mount("", target, None, flags)


def _make_mount_point(source: int, target: str) -> None:
    if os.path.lexists(target):
        return
    if os.path.isdir(f"/proc/self/fd/{source}"):  # noqa: PTH112 - pathlib costs start-up time
        os.makedirs(target, 0o755)  # noqa: PTH103 - pathlib costs start-up time
        return
    os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)  # noqa: PTH103, PTH120 - the same
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
