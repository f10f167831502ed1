"""Runs a command that ends when its parent does: ``pdeathsig.py PARENT SOCKETS COMMAND...``.

For Linux. Run as a script with ``-I -S``, so it costs a few milliseconds. Without it a killed
`carrel up` would leave children behind that hold the ports. ``SOCKETS`` are names and descriptors
of listening sockets, such as ``public=7,internal=8``, or empty; the command is given them as
systemd does it (``sd_listen_fds_with_names``).
"""

import ctypes
import fcntl
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
FIRST_DESCRIPTOR = 3


def main() -> None:
    """Ask the kernel for a SIGTERM at the parent's death, then exec."""
    parent, sockets, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    if sockets:
        hand_over(dict(pair.split("=") for pair in sockets.split(",")))
    os.execv(command[0], command)  # noqa: S606 - there is no shell to start


def hand_over(sockets: dict[str, str]) -> None:
    """Move the descriptors to where they are looked for, and say which process they are for."""
    above = FIRST_DESCRIPTOR + len(sockets)
    given = [int(descriptor) for descriptor in sockets.values()]
    moved = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, above) for one in given]
    for one in given:
        os.close(one)
    for place, one in enumerate(moved, FIRST_DESCRIPTOR):
        os.dup2(one, place)
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.environ["LISTEN_FDS"] = str(len(sockets))
    os.environ["LISTEN_FDNAMES"] = ":".join(sockets)


if __name__ == "__main__":
    main()
