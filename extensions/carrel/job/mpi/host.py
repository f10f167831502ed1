"""``python -m carrel.job.mpi.host NAME COMMAND...``: runs a command on a machine called NAME.

Open MPI tells machines by their names, and members of a gang may share one machine: its daemons
would disagree on which ranks share memory, and collective calls would wait for ever. So each has a
host name of its own, in a namespace that an ordinary user may make. Where that is refused, the
command runs all the same.
"""

import ctypes
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

_NEW_NAMES: Final = 0x04000000  # CLONE_NEWUTS
_NEW_USERS: Final = 0x10000000  # CLONE_NEWUSER


def command_on_host(name: str, command: list[str]) -> list[str]:
    """The command as this module runs it; unchanged where the machine is called that already."""
    if socket.gethostname() == name or not sys.platform.startswith("linux"):
        return command
    return [sys.executable, "-m", __name__, name, *command]


def main() -> None:
    """Take the name, if that is allowed, and become the command."""
    name, *command = sys.argv[1:]
    take = next((way for way in (_as_administrator, _as_user) if _allowed(way, name)), None)
    if take is not None:
        take(name)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the list form, which is without a shell
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        sys.exit(127)


def _allowed(way: Callable[[str], None], name: str) -> bool:
    """Try in a child process: a half-done change cannot be undone."""
    child = os.fork()
    if child == 0:
        try:
            way(name)
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def _as_administrator(name: str) -> None:
    _unshare(_NEW_NAMES)
    socket.sethostname(name)


def _as_user(name: str) -> None:
    """Enter a user namespace that maps this user only."""
    user, group = os.getuid(), os.getgid()
    _unshare(_NEW_USERS | _NEW_NAMES)
    own = Path("/proc/self")
    (own / "setgroups").write_text("deny")
    (own / "uid_map").write_text(f"{user} {user} 1")
    (own / "gid_map").write_text(f"{group} {group} 1")
    socket.sethostname(name)


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
