"""Which server gets a request, what each has at once, and which requests wait for a server.

A request waits for the first server of what comes when asked for, and for room while servers with
room may still come: then in the order in which requests came. Where as many servers are ready as
there may be, or none comes, it goes to the least busy one at once.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from carrel_hub.gateway.table import Place, Table, Target

MOST_HELD: Final = 256
LONGEST_HOLD_SECONDS: Final = 600.0
# So long a burst waits until the scheduler has heard of it and begun to start more servers.
REACTION_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 1.0


class TooManyHeld(Exception):  # noqa: N818 - an outcome to handle
    """As many requests wait for this endpoint as may."""


@dataclass(slots=True)
class Balance:
    """Requests in flight by target and by place.

    Attributes:
        changed: hears the uid of a place whose numbers change.
        freed: hears the uid of a place where a target has one request less.
    """

    changed: Callable[[str], None] = lambda _: None
    freed: Callable[[str], None] = lambda _: None
    _busy: dict[str, Counter[str]] = field(default_factory=dict)
    at_place: Counter[str] = field(default_factory=Counter)
    _queues: dict[str, dict[object, None]] = field(default_factory=dict)
    _turn: int = 0

    def at_targets(self, uid: str) -> Mapping[str, int]:
        """Requests by target of a place; those without any are left out."""
        return self._busy.get(uid, {})

    def busy_targets(self) -> set[str]:
        """All that have requests."""
        return {target for targets in self._busy.values() for target in targets}

    def choose(self, uid: str, targets: Sequence[Target], tried: set[str]) -> Target | None:
        """The one with the fewest requests that was not tried; equal ones in turn."""
        left = [one for one in targets if one.uid not in tried]
        if len(left) < 2:
            return left[0] if left else None
        busy = self.at_targets(uid)
        self._turn += 1
        first = self._turn % len(left)
        return min(left[first:] + left[:first], key=lambda one: busy.get(one.uid, 0))

    def request(self, uid: str) -> "_Counted":
        """A request to a place, from when it comes until it is answered."""
        return _Counted(self.at_place, uid, self.changed, uid)

    @contextmanager
    def at(self, uid: str, target: Target) -> Iterator[None]:
        """A request that a target has."""
        busy = self._busy.setdefault(uid, Counter())
        try:
            with _Counted(busy, target.uid, self.changed, uid):
                yield
        finally:
            if not busy and self._busy.get(uid) is busy:
                del self._busy[uid]
            self.freed(uid)

    def room(self, place: Place, name: str) -> int:
        """How many more requests its servers should have now."""
        busy = self.at_targets(place.uid)
        return sum(
            max(place.at_once - busy.get(one.uid, 0), 0) for one in place.targets.get(name, ())
        )

    def waiting(self, uid: str) -> int:
        """Requests that wait for a place."""
        return len(self._queues.get(uid, ()))

    def before(self, uid: str, ticket: object) -> int:
        """How many wait before this one."""
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


class _Counted:
    """One more as long as it lasts."""

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


async def servers(table: Table, balance: Balance, place: Place, name: str) -> Place | None:
    """The place once a request may go to a server of it, or as it is when none came in time.

    ``None``: it has gone. Raises ``TooManyHeld``.
    """
    there = bool(place.targets.get(name))
    if not _may_wait(place, name) or (
        there and not balance.waiting(place.uid) and balance.room(place, name)
    ):
        return place
    if balance.waiting(place.uid) >= MOST_HELD:
        if there:
            return place
        raise TooManyHeld
    seconds = min(place.startup_seconds, LONGEST_HOLD_SECONDS)
    loop = asyncio.get_running_loop()
    reaction = loop.time() + REACTION_SECONDS
    now: Place | None = place
    with balance.queued(place.uid) as ticket, contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while now is not None and _may_wait(now, name):
                if balance.room(now, name) > balance.before(place.uid, ticket):
                    return now
                if now.targets.get(name) and not now.coming and loop.time() > reaction:
                    return now
                await _changed(table, place.uid)
                now = table.find(place.project, place.name)
    return table.find(place.project, place.name)


def _may_wait(place: Place, name: str) -> bool:
    """Whether there is something to wait for: a first server, or more of them."""
    ready = len(place.targets.get(name, ()))
    return place.comes_by_itself if not ready else ready < place.most_servers


async def _changed(table: Table, uid: str) -> None:
    """Wait for news of a place, and look again without any after a while."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LOOK_SECONDS):
            await table.changed(uid)
