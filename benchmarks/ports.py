"""Ports for servers that tests and benchmarks start in other processes.

Each stays bound here, without listening, until this process ends: the kernel gives it to nobody
who asks for any port, and to no outgoing connection. In gets who names it and, as servers do, sets
``SO_REUSEADDR``, also again and again.
"""

import atexit
import socket
from contextlib import ExitStack
from typing import Final

_HOLDERS: Final = ExitStack()
atexit.register(_HOLDERS.close)


def free_port() -> int:
    """A port of loopback that nobody else is given."""
    holder = _HOLDERS.enter_context(socket.socket())
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return int(holder.getsockname()[1])


def free_ports(count: int) -> list[int]:
    """So many free ports, all different."""
    return [free_port() for _ in range(count)]
