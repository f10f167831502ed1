"""Ports of tasks: chosen when a task gets its place, held until it runs, passed by its environment.

A port is taken from below those that the kernel hands out by itself, so that no outgoing
connection ever gets it, and it is given to nobody else for as long as the task lives. From the
choice until the task runs a socket holds it that is bound and does not listen: other schedulers of
this machine find it taken. What was chosen is part of the task's status, so it is known after a
restart.
"""

import random
import re
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from carrel_scheduler.engines.contract import TaskId
from carrel_schema.sections import Route

MAIN: Final = "main"
LOWEST: Final = 15_000
HIGHEST: Final = 32_000
ATTEMPTS: Final = 2000
_RANGE_FILE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_REFERENCE: Final = re.compile(r"\$\((\$?)([A-Za-z_][A-Za-z0-9_]*)\)")


class PortAllocator(Protocol):
    """Chooses ports of tasks."""

    def give(
        self, task: TaskId, routes: Sequence[Route], taken: Collection[int], /
    ) -> dict[str, int]:
        """Assign a port to each route, by its name; ``taken`` are those of other tasks."""
        ...

    def refusal(self, routes: Sequence[Route], /) -> str:
        """The reason why a task with these routes cannot start now; empty if it can."""
        ...

    def let_go(self, task: TaskId, /) -> None:
        """Stop holding a task's ports: it runs, or will not run any more."""
        ...


class FixedPorts:
    """Ports where every task has an address of its own: what was asked for, and 8080 upwards."""

    def give(
        self, _task: TaskId, routes: Sequence[Route], _taken: Collection[int], /
    ) -> dict[str, int]:
        """See ``PortAllocator``."""
        return {name_of(route): route.port or 8080 + number for number, route in enumerate(routes)}

    def refusal(self, _routes: Sequence[Route], /) -> str:
        """Always empty: no other program has these ports."""
        return ""

    def let_go(self, _task: TaskId, /) -> None:
        """No effect: no port was reserved."""


class HeldPorts:
    """Ports of one machine. ``chance`` gives numbers in [0, 1)."""

    def __init__(self, *, chance: Callable[[], float] = random.random) -> None:
        self._chance = chance
        self._held: dict[TaskId, list[socket.socket]] = {}
        self._highest = min(HIGHEST, _first_of_the_kernel() - 1)

    def give(self, task: TaskId, routes: Sequence[Route], taken: Collection[int]) -> dict[str, int]:
        """See ``PortAllocator``."""
        given: dict[str, int] = {}
        for route in routes:
            if route.port:
                given[name_of(route)] = route.port
                continue
            holder = self._hold({*taken, *given.values()})
            self._held.setdefault(task, []).append(holder)
            given[name_of(route)] = holder.getsockname()[1]
        return given

    def refusal(self, routes: Sequence[Route]) -> str:
        """See ``PortAllocator``."""
        used = [route.port for route in routes if route.port and not _is_free(route.port)]
        if not used:
            return ""
        return f"port {used[0]} is used already; leave `port` 0 and have the server listen on PORT"

    def let_go(self, task: TaskId) -> None:
        """See ``PortAllocator``."""
        for holder in self._held.pop(task, ()):
            holder.close()

    def _hold(self, taken: Collection[int]) -> socket.socket:
        for _ in range(ATTEMPTS):
            port = LOWEST + int(self._chance() * (self._highest - LOWEST))
            holder = None if port in taken else _bound(port)
            if holder is not None:
                return holder
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        holder.bind(("127.0.0.1", 0))
        return holder


def _bound(port: int) -> socket.socket | None:
    """A socket bound to a port, or ``None`` where another program has it."""
    holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        # Without SO_REUSEADDR: this fails where anybody else is bound.
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        return None
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return holder


def _is_free(port: int) -> bool:
    """Whether the port can be bound."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def name_of(route: Route) -> str:
    """The name of a route in ``TaskInfo.ports``."""
    return route.name or MAIN


def told(ports: Mapping[str, int], routes: Sequence[Route], address: str) -> dict[str, str]:
    """The variables of a task with ports.

    Args:
        ports: by the names of the routes.
        routes: of the workload; ``PORT`` and ``CARREL_PREFIX`` are the first one's.
        address: path below which the gateway has the workload.
    """
    found: dict[str, str] = {}
    for route in routes:
        if name_of(route) not in ports:
            continue
        port, prefix = str(ports[name_of(route)]), prefix_of(address, route)
        suffix = name_of(route).upper().replace("-", "_")
        found.setdefault("PORT", port)
        found.setdefault("CARREL_PREFIX", prefix)
        found |= {f"CARREL_PORT_{suffix}": port, f"CARREL_PREFIX_{suffix}": prefix}
    return found


def prefix_of(address: str, route: Route) -> str:
    """The path of a route at the gateway, without a trailing slash."""
    return f"{address}/~{route.name}" if route.name else address


def filled_in(command: Sequence[str], variables: Mapping[str, str]) -> tuple[str, ...]:
    """A command with ``$(NAME)`` replaced, as Kubernetes does: known variables of its ports only.

    ``$($NAME)`` and all other text stay as they are: no shell is involved.
    """

    def value(found: re.Match[str]) -> str:
        known = not found[1] and found[2] in variables
        return variables[found[2]] if known else found[0]

    return tuple(_REFERENCE.sub(value, part) for part in command)


def _first_of_the_kernel() -> int:
    """The first of the kernel's ephemeral ports."""
    try:
        return int(_RANGE_FILE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return HIGHEST + 1
