"""Loopback ports for the parts: chosen once and kept, because workspaces that run on know them.

They lie below those that the kernel hands out by itself, so that no outgoing connection gets one
while the parts are away, and below those that the scheduler gives to tasks.
"""

import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from carrel_hub.settings import Ports

NAMES: Final = ("hub", "proxy_api", "scheduler", "console", "gateway")
LOWEST: Final = 10_000
HIGHEST: Final = 15_000
ATTEMPTS: Final = 200


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
