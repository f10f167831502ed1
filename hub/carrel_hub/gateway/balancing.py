"""Which server gets a request, and what each has at once; requests that wait for a first server."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from carrel_hub.gateway.table import Place, Table, Target

MOST_HELD: Final = 256
LONGEST_HOLD_SECONDS: Final = 600.0


class TooManyHeld(Exception):  # noqa: N818 - an outcome to handle
    """As many requests wait for this endpoint as may."""


@dataclass(slots=True)
class Balance:
    """Requests in flight by target and by place. ``changed`` hears the uid of a place."""

    changed: Callable[[str], None] = lambda _: None
    _busy: dict[str, Counter[str]] = field(default_factory=dict)
    at_place: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    _turn: int = 0

    def at_targets(self, uid: str) -> Mapping[str, int]:
        """Requests by target of a place; those without any are left out."""
        return self._busy.get(uid, {})

    def choose(self, uid: str, targets: Sequence[Target], tried: set[str]) -> Target | None:
        """The one with the fewest requests that was not tried; equal ones in turn."""
        left = [one for one in targets if one.uid not in tried]
        if len(left) < 2:
            return left[0] if left else None
        busy = self.at_targets(uid)
        self._turn += 1
        first = self._turn % len(left)
        return min(left[first:] + left[:first], key=lambda one: busy.get(one.uid, 0))

    @contextmanager
    def request(self, uid: str) -> Iterator[None]:
        """A request to a place, from when it comes until it is answered."""
        with _counted(self.at_place, uid, self.changed, uid):
            yield

    @contextmanager
    def at(self, uid: str, target: Target) -> Iterator[None]:
        """A request that a target has."""
        busy = self._busy.setdefault(uid, Counter())
        try:
            with _counted(busy, target.uid, self.changed, uid):
                yield
        finally:
            if not busy:
                self._busy.pop(uid, None)

    @contextmanager
    def holding(self, uid: str) -> Iterator[None]:
        """A request that waits; raises ``TooManyHeld``."""
        if self.held[uid] >= MOST_HELD:
            raise TooManyHeld
        with _counted(self.held, uid, self.changed, uid):
            yield


@contextmanager
def _counted(
    counts: Counter[str], key: str, changed: Callable[[str], None], uid: str
) -> Iterator[None]:
    counts[key] += 1
    changed(uid)
    try:
        yield
    finally:
        counts[key] -= 1
        if not counts[key]:
            del counts[key]
        changed(uid)


async def servers(table: Table, balance: Balance, place: Place, name: str) -> Place | None:
    """The place once it has a server for the route, or ``None`` when none came in time.

    Held are only requests to what comes by itself when asked for. Raises ``TooManyHeld``.
    """
    if place.targets.get(name) or not place.comes_by_itself:
        return place
    seconds = min(place.startup_seconds, LONGEST_HOLD_SECONDS)
    now: Place | None = place
    with balance.holding(place.uid):
        try:
            async with asyncio.timeout(seconds):
                while now is not None and not now.targets.get(name) and now.comes_by_itself:
                    await table.changed(place.uid)
                    now = table.find(place.project, place.name)
        except TimeoutError:
            return table.find(place.project, place.name)
    return now
