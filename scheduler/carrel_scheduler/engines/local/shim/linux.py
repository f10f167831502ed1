"""The system calls for which Python has no function."""

import ctypes
import errno
import os

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP, SECCOMP_MODE_FILTER, BPF_INSTRUCTION_BYTES = 22, 2, 8
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOSYMFOLLOW = 0x1, 0x2, 0x4, 0x100
ST_NOSYMFOLLOW = 0x2000
MS_REMOUNT, MS_BIND, MNT_DETACH = 0x20, 0x1000, 2
CLONE_NEWNET = 0x40000000
RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_IN_ROOT = 0x02, 0x04, 0x10
AT_FDCWD = -100
_OPENAT2 = 437
_UNCHANGED = -1

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def prctl(option: int, value: int) -> None:
    """Set a property of this process."""
    _check(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl({option})")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def set_syscall_filter(program: bytes) -> None:
    """Refuse system calls from now on, also those of later children and programs."""
    told = _Program(len(program) // BPF_INSTRUCTION_BYTES, program)
    result = _libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(told), 0, 0)
    _check(result, "the filter of system calls")


def setns(descriptor: int) -> None:
    """Enter the namespace of a descriptor (of a PID namespace: only later children do)."""
    _check(_libc.setns(descriptor, 0), "joining namespaces")


def open_path(path: str, resolve: int, directory: int = AT_FDCWD) -> int:
    """Open a path as a reference only (``O_PATH``), resolved as ``openat2(2)`` says.

    Raises ``OSError`` with the reason alone, so that it can be shown with the name a user gave.
    """
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, resolve)
    if "\0" in path:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    name, size = os.fsencode(path), ctypes.c_size_t(ctypes.sizeof(how))
    descriptor = _libc.syscall(_OPENAT2, directory, name, ctypes.byref(how), size)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(descriptor)


def set_file_ids(uid: int, gid: int) -> None:
    """Look at files with the rights of an account from now on (this thread only)."""
    _libc.setfsgid(gid)
    _libc.setfsuid(uid)
    if (_libc.setfsuid(_UNCHANGED), _libc.setfsgid(_UNCHANGED)) != (uid, gid):
        raise PermissionError(f"the rights of account {uid} cannot be taken on")


def mount(source: str | None, target: str, flags: int) -> None:
    """Mount without a file system type: bind mounts and changes of their flags."""
    name = None if source is None else os.fsencode(source)
    result = _libc.mount(name, os.fsencode(target), None, ctypes.c_ulong(flags), None)
    _check(result, f"mounting {target}")


def unmount(target: str) -> None:
    """Unmount once it is not used any more."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"unmounting {target}")


def unshare(flags: int) -> None:
    """Begin new namespaces for this process."""
    _check(_libc.unshare(flags), "beginning namespaces")
