"""Loopback ports for the parts: chosen once and kept, because workspaces that run on know them."""

import socket
from pathlib import Path

import msgspec

from carrel_hub.settings import Ports

NAMES = ("hub", "proxy_api", "scheduler", "console", "gateway")


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
    probes = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in NAMES]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        found = [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
    return Ports(**dict(zip(NAMES, found, strict=True)))


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
