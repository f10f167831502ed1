"""Loopback ports of the parts, and the sockets that listen there.

Ports are chosen once and kept, because workspaces that run on know them. They lie below those that
the kernel hands out by itself, so that no outgoing connection gets one while the parts are away,
and below those that the scheduler gives to tasks.

The listening sockets of Hub and services are open from before the first part starts to the end. A
part that dies leaves no free port behind: no other account of the machine can take it, and
connections made meanwhile wait for the part that is started again. The proxy listens by itself: a
Traefik that has just started answers "404 page not found" until it has read its routes, so what
waited for it would be told that it does not exist.
"""

import errno
import random
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from carrel_hub.settings import Ports
from carrel_hub.up.checks import StartupError
from carrel_hub.up.options import LOCALHOST

NAMES: Final = ("hub", "proxy_api", "scheduler", "console", "gateway")
LOWEST: Final = 10_000
HIGHEST: Final = 15_000
ATTEMPTS: Final = 200
BACKLOG: Final = 1024
PARTS: Final = ("hub", "scheduler", "console", "gateway")

Listeners = Mapping[str, socket.socket]


def load_or_choose(path: Path) -> tuple[Ports, bool]:
    """The ports, and whether some had to change because another program took them."""
    try:
        known = msgspec.json.decode(path.read_bytes(), type=dict[str, int])
    except (FileNotFoundError, msgspec.MsgspecError):
        known = {}
    taken = not all(_is_free(known[name]) for name in NAMES if name in known)
    if not taken and set(NAMES) <= set(known):
        return msgspec.convert(known, Ports), False
    kept = {} if taken else {name: known[name] for name in NAMES if name in known}
    chosen = msgspec.structs.replace(_choose(), **kept)
    path.write_bytes(msgspec.json.encode(chosen))
    return chosen, taken


def _choose() -> Ports:
    """Free ones, all different."""
    with ExitStack() as held:
        return Ports(**{name: _bound(held.enter_context(socket.socket())) for name in NAMES})


def _bound(probe: socket.socket) -> int:
    """The port that a socket was bound to; any one where all that were tried are taken."""
    for _ in range(ATTEMPTS):
        try:
            probe.bind(("127.0.0.1", random.randrange(LOWEST, HIGHEST)))  # noqa: S311 - no secret
        except OSError:
            continue
        break
    else:
        probe.bind(("127.0.0.1", 0))
    return int(probe.getsockname()[1])


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def listeners(ports: Ports) -> Iterator[Listeners]:
    """Open one for each part; closed at the end. Raises ``StartupError``."""
    with ExitStack() as stack:
        yield {part: stack.enter_context(_listening(getattr(ports, part))) for part in PARTS}


def _listening(port: int) -> socket.socket:
    try:
        return socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartupError(
                f"Another program has just taken port {port}; start again."
            ) from None
        raise StartupError(f"Cannot listen on 127.0.0.1 port {port}: {error.strerror}.") from None


@contextmanager
def hold_ipv6_loopback(name: str, port: int) -> Iterator[None]:
    """Keep the port of the other loopback address, which browsers try for ``localhost``, too.

    Nobody listens there, so they come to us; and nobody else can. Raises ``StartupError``.
    """
    if name != LOCALHOST:
        yield
        return
    with ExitStack() as stack:
        try:
            held = stack.enter_context(socket.socket(socket.AF_INET6))
            held.bind(("::1", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise StartupError(
                    f"Another program has port {port} of [::1], where browsers look for localhost; "
                    "choose another --port."
                ) from None
            # This machine has no IPv6.
        yield
