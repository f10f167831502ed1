"""Becomes a command that ends when its parent does: ``tied.py PARENT COMMAND...`` (Linux).

Run as a script with ``-I -S``, so it costs a few milliseconds. Without it a killed `carrel up`
would leave children behind that hold the ports.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for a SIGTERM at the parent's death, then exec."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - there is no shell to start


if __name__ == "__main__":
    main()
