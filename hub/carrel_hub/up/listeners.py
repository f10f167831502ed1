"""The listening sockets of Hub and services, open from before the first part starts to the end.

A part that dies leaves no free port behind: no other account of the machine can take it, and
connections made meanwhile wait for the part that is started again. The proxy listens by itself: a
Traefik that has just started answers "404 page not found" until it has read its routes, so what
waited for it would be told that it does not exist.
"""

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from carrel_hub.settings import Ports
from carrel_hub.up.trouble import Trouble

BACKLOG: Final = 1024
PARTS: Final = ("hub", "scheduler", "console", "gateway")

Listeners = Mapping[str, socket.socket]


@contextmanager
def listeners(ports: Ports) -> Iterator[Listeners]:
    """Open one for each part; closed at the end. Raises ``Trouble``."""
    with ExitStack() as stack:
        yield {part: stack.enter_context(_listening(getattr(ports, part))) for part in PARTS}


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise Trouble(f"Another program has just taken port {port}; start again.") from None
        raise Trouble(f"Cannot listen on 127.0.0.1 port {port}: {error.strerror}.") from None
