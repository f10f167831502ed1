"""The few system calls that Python has no function for."""

import ctypes
import os

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
CLONE_NEWNS = 0x00020000
MS_RDONLY, MS_NOSUID, MS_NODEV = 0x1, 0x2, 0x4
MS_REMOUNT, MS_BIND, MS_REC, MS_SLAVE = 0x20, 0x1000, 0x4000, 0x80000

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl({option})")


def unshare_mounts() -> None:
    """Leave the shared view of the file systems; what we mount from now on is ours alone."""
    _check(_libc.unshare(CLONE_NEWNS), "a private mount namespace")


def join_namespace(descriptor: int) -> None:
    """Enter the mount namespace that the descriptor stands for."""
    _check(_libc.setns(descriptor, CLONE_NEWNS), "joining the task's mount namespace")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    """Mount; empty source and options mean none."""
    result = _libc.mount(
        source.encode() or None,
        target.encode(),
        kind.encode() if kind else None,
        ctypes.c_ulong(flags),
        options.encode() or None,
    )
    _check(result, f"mounting on {target}")
