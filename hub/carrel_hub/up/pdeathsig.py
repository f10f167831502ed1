"""Runs a command that ends when its parent does: ``pdeathsig.py PARENT LISTENER COMMAND...``.

For Linux. Run as a script with ``-I -S``, so it costs a few milliseconds. Without it a killed
`carrel up` would leave children behind that hold the ports. ``LISTENER`` is the descriptor of a
listening socket or empty; the command is given it as systemd does it (``sd_listen_fds``).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
FIRST_DESCRIPTOR = 3


def main() -> None:
    """Ask the kernel for a SIGTERM at the parent's death, then exec."""
    parent, listener, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    if listener:
        hand_over(int(listener))
    os.execv(command[0], command)  # noqa: S606 - there is no shell to start


def hand_over(listener: int) -> None:
    """Move the descriptor to where it is looked for, and say which process it is for."""
    if listener == FIRST_DESCRIPTOR:
        os.set_inheritable(listener, True)  # noqa: FBT003 - positional only
    else:
        os.dup2(listener, FIRST_DESCRIPTOR)
        os.close(listener)
    os.environ["LISTEN_PID"] = str(os.getpid())
    os.environ["LISTEN_FDS"] = "1"


if __name__ == "__main__":
    main()
