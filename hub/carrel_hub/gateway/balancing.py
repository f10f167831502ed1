"""Load balancing: which server gets a request, what each has at once, which requests are held.

A request waits for the first server of an endpoint that wakes, and for free capacity while more
servers may still start: then in the order in which requests came. Where as many servers are ready
as there may be, or none is being started, it goes to the least busy one at once.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from carrel_hub.gateway.routing import RoutedWorkload, RouteTarget, RoutingTable

MOST_HELD: Final = 256
LONGEST_HOLD_SECONDS: Final = 600.0
# Seconds that a burst waits while the scheduler learns of it and starts more servers.
REACTION_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 1.0


class TooManyHeld(Exception):  # noqa: N818 - an outcome to handle
    """The endpoint has as many waiting requests as are allowed."""


@dataclass(slots=True)
class LoadBalancer:
    """Requests in flight by target and by workload.

    Attributes:
        changed: called with the uid of a workload whose numbers change.
        freed: called with the uid of a workload where a target has one request less.
        in_flight: requests by the uid of their workload, held ones too.
    """

    changed: Callable[[str], None] = lambda _: None
    freed: Callable[[str], None] = lambda _: None
    _busy: dict[str, Counter[str]] = field(default_factory=dict)
    in_flight: Counter[str] = field(default_factory=Counter)
    _queues: dict[str, dict[object, None]] = field(default_factory=dict)
    _turn: int = 0

    def at_targets(self, uid: str) -> Mapping[str, int]:
        """Requests by target of a workload; those without any are left out."""
        return self._busy.get(uid, {})

    def busy_targets(self) -> set[str]:
        """The targets that have requests."""
        return {target for targets in self._busy.values() for target in targets}

    def choose(
        self, uid: str, targets: Sequence[RouteTarget], tried: set[str]
    ) -> RouteTarget | None:
        """The one with the fewest requests that was not tried; equal ones in turn."""
        left = [one for one in targets if one.uid not in tried]
        if len(left) < 2:
            return left[0] if left else None
        busy = self.at_targets(uid)
        self._turn += 1
        first = self._turn % len(left)
        return min(left[first:] + left[:first], key=lambda one: busy.get(one.uid, 0))

    def request(self, uid: str) -> "_RequestCount":
        """A request to a workload, from when it comes until it is answered."""
        return _RequestCount(self.in_flight, uid, self.changed, uid)

    @contextmanager
    def at(self, uid: str, target: RouteTarget) -> Iterator[None]:
        """Count a request at a target inside the block."""
        busy = self._busy.setdefault(uid, Counter())
        try:
            with _RequestCount(busy, target.uid, self.changed, uid):
                yield
        finally:
            if not busy and self._busy.get(uid) is busy:
                del self._busy[uid]
            self.freed(uid)

    def free_capacity(self, workload: RoutedWorkload, route: str) -> int:
        """The number of further requests that the servers of a route should have now."""
        busy, most = self.at_targets(workload.uid), workload.requests_per_server
        return sum(max(most - busy.get(one.uid, 0), 0) for one in workload.targets.get(route, ()))

    def held(self, uid: str) -> int:
        """Requests that wait for a workload's targets."""
        return len(self._queues.get(uid, ()))

    def before(self, uid: str, ticket: object) -> int:
        """The number of requests that wait before this one."""
        return list(self._queues[uid]).index(ticket)

    @contextmanager
    def queued(self, uid: str) -> Iterator[object]:
        """A request that waits, behind those that do already; gives its ticket."""
        queue, ticket = self._queues.setdefault(uid, {}), object()
        queue[ticket] = None
        try:
            yield ticket
        finally:
            del queue[ticket]
            if not queue and self._queues.get(uid) is queue:
                del self._queues[uid]


class _RequestCount:
    """A context manager, cheaper than one of a generator: one more as long as it lasts."""

    __slots__ = ("_changed", "_counts", "_key", "_uid")

    def __init__(
        self, counts: Counter[str], key: str, changed: Callable[[str], None], uid: str
    ) -> None:
        self._counts, self._key, self._changed, self._uid = counts, key, changed, uid

    def __enter__(self) -> None:
        self._counts[self._key] += 1
        self._changed(self._uid)

    def __exit__(self, *_: object) -> None:
        self._counts[self._key] -= 1
        if not self._counts[self._key]:
            del self._counts[self._key]
        self._changed(self._uid)


async def await_capacity(
    table: RoutingTable, balancer: LoadBalancer, workload: RoutedWorkload, route: str
) -> RoutedWorkload | None:
    """The workload once a server of it may take a request, or as it is when none came in time.

    ``None``: it has gone. Raises ``TooManyHeld``.
    """
    ready = bool(workload.targets.get(route))
    if not _may_wait(workload, route) or (
        ready and not balancer.held(workload.uid) and balancer.free_capacity(workload, route)
    ):
        return workload
    if balancer.held(workload.uid) >= MOST_HELD:
        if ready:
            return workload
        raise TooManyHeld
    seconds = min(workload.startup_seconds, LONGEST_HOLD_SECONDS)
    loop = asyncio.get_running_loop()
    reaction = loop.time() + REACTION_SECONDS
    now: RoutedWorkload | None = workload
    with balancer.queued(workload.uid) as ticket, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while now is not None and _may_wait(now, route):
                if balancer.free_capacity(now, route) > balancer.before(workload.uid, ticket):
                    return now
                if now.targets.get(route) and not now.scaling_up and loop.time() > reaction:
                    return now
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_SECONDS):
                        await table.changed(workload.uid)
                now = table.find(workload.project, workload.name)
    return table.find(workload.project, workload.name)


def _may_wait(workload: RoutedWorkload, route: str) -> bool:
    """Whether there is something to wait for: a first server, or more of them."""
    ready = len(workload.targets.get(route, ()))
    return workload.wakes if not ready else ready < workload.max_servers
