"""The listening socket that a process's parent opened for it, handed over as systemd does it.

``LISTEN_FDS`` sockets begin at descriptor 3 and are meant for the process ``LISTEN_PID`` only. The
parent keeps them open: the port stays taken and connections wait while the
process is away. A process that is given none listens by itself.
"""

import os
import socket
from collections.abc import MutableMapping
from typing import Final, Protocol

FIRST_DESCRIPTOR: Final = 3


class WrongListenerError(Exception):
    """The socket that was handed over is not the one that this process is to listen on."""


def inherited(environment: MutableMapping[str, str] = os.environ) -> socket.socket | None:
    """Take the socket over, if there is one; call it before anything starts a process.

    No process started later gets it or is told of it. Raises ``WrongListenerError``.
    """
    ours = environment.pop("LISTEN_PID", "") == str(os.getpid())
    count = environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if not ours:
        return None
    if count != "1":
        raise WrongListenerError(f"LISTEN_FDS={count!r}: 1 is right")
    listener = socket.socket(fileno=FIRST_DESCRIPTOR)
    listener.set_inheritable(False)
    listener.setblocking(False)  # noqa: FBT003 - positional only
    if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise WrongListenerError(f"descriptor {FIRST_DESCRIPTOR} does not listen")
    return listener


def check(listener: socket.socket, host: str, port: int) -> None:
    """Raise ``WrongListenerError`` unless it listens there."""
    found = listener.getsockname()[:2]
    if found != (host, port):
        raise WrongListenerError(f"the socket listens on {found}, not on {(host, port)}")


class ListeningServer(Protocol):
    """A server of Tornado, as far as it matters here."""

    def listen(self, port: int, address: str) -> None:
        """Listen at an address of its own."""
        ...

    def add_socket(self, socket: socket.socket) -> None:
        """Listen on a socket that is there."""
        ...


def listen(server: ListeningServer, host: str, port: int, listener: socket.socket | None) -> None:
    """Serve at the socket that was handed over, or at one of our own."""
    if listener is None:
        server.listen(port, address=host)
        return
    check(listener, host, port)
    server.add_socket(listener)
