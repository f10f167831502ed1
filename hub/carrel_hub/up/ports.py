"""Loopback ports of the parts, and their listening sockets.

Ports are chosen once and kept, because workspaces that run on know them. They lie below those that
the kernel hands out by itself, so that no outgoing connection gets one while the parts are away,
and below those that the scheduler gives to tasks.

The listening sockets of all parts are open from before the first part starts to the end. A part
that dies leaves no free port behind: no other account of the machine can take it, and connections
made meanwhile wait for the part that is started again. At the proxy's public port they wait outside
(``Gate``): a Traefik that has just started answers "404 page not found" until it has read its
routes, and JupyterLab takes that for a kernel that is gone.
"""

import asyncio
import ctypes
import errno
import random
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from carrel_hub.front import traefik
from carrel_hub.settings import InstallationSettings, Ports
from carrel_hub.up.checks import StartupError
from carrel_hub.up.options import LOCALHOST

NAMES: Final = ("hub", "proxy_api", "scheduler", "console", "gateway")
LOWEST: Final = 10_000
HIGHEST: Final = 15_000
ATTEMPTS: Final = 200
BACKLOG: Final = 1024
PARTS: Final = ("hub", "scheduler", "console", "gateway")
# Numbers of Linux; Python's socket module has no names for them.
_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_RETURN: Final = 6
_READY_PAUSE_SECONDS: Final = 0.05

Listeners = Mapping[str, Mapping[str, socket.socket]]
"""The sockets of each part by their names: of one with several, those of its entry points."""


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
    """Free ports, all different."""
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
def listeners(settings: InstallationSettings) -> Iterator[Listeners]:
    """Open the sockets of each part; closed at the end. Raises ``StartupError``."""
    ports, host = settings.ports, settings.host
    places = {part: {"http": ("127.0.0.1", getattr(ports, part))} for part in PARTS}
    places["proxy"] = {
        traefik.PUBLIC: (host, settings.port),
        traefik.INTERNAL: ("127.0.0.1", ports.proxy_api),
    }
    if settings.tls is not None and settings.tls.plain_port:
        places["proxy"][traefik.PLAIN] = (host, settings.tls.plain_port)
    with ExitStack() as stack:
        yield {
            part: {name: stack.enter_context(_listening(*place)) for name, place in named.items()}
            for part, named in places.items()
        }


def _listening(host: str, port: int) -> socket.socket:
    every = host in ("", "::")
    try:
        return socket.create_server(
            ("::" if every else host, port),
            family=socket.AF_INET6 if every or ":" in host else socket.AF_INET,
            backlog=BACKLOG,
            dualstack_ipv6=every and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartupError(
                f"Another program has just taken port {port}; start again."
            ) from None
        raise StartupError(f"Cannot listen on {host} port {port}: {error.strerror}.") from None


class Gate:
    """Holds new connections to listening sockets back while the part behind them is not ready.

    While it is shut, a socket filter (``SO_ATTACH_FILTER``) drops SYN packets; clients send them
    again after a second.

    Args:
        ready: whether the part can answer for what visitors ask.
    """

    def __init__(
        self, sockets: Sequence[socket.socket], ready: Callable[[], Awaitable[bool]]
    ) -> None:
        self._sockets, self._ready = sockets, ready
        self._is_shut = asyncio.Event()

    def shut(self) -> None:
        """Drop new connections from now on; those in the accept queue are closed."""
        drop = ctypes.create_string_buffer(struct.pack("HBBI", _RETURN, 0, 0, 0))
        program = struct.pack("HP", 1, ctypes.addressof(drop))
        for one in self._sockets:
            one.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
            one.setblocking(False)  # noqa: FBT003 - positional only
            with suppress(BlockingIOError):
                while True:
                    one.accept()[0].close()
        self._is_shut.set()

    async def open_when_ready(self) -> None:
        """Open the port as soon as the part is ready, each time that it was shut; runs for ever."""
        while True:
            await self._is_shut.wait()
            while not await self._ready():  # noqa: ASYNC110 - another process becomes ready
                await asyncio.sleep(_READY_PAUSE_SECONDS)
            for one in self._sockets:
                one.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, 0)
            self._is_shut.clear()


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
