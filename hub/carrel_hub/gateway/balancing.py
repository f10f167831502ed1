"""Which server gets a request, and what each has at once; requests that wait for a first server."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
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

    def request(self, uid: str) -> "_Counted":
        """A request to a place, from when it comes until it is answered."""
        return _Counted(self.at_place, uid, self.changed, uid)

    def at(self, uid: str, target: Target) -> "_Counted":
        """A request that a target has."""
        busy = self._busy.get(uid)
        if busy is None:
            busy = self._busy[uid] = Counter()
        return _Counted(busy, target.uid, self.changed, uid, self._busy)

    def holding(self, uid: str) -> "_Counted":
        """A request that waits; raises ``TooManyHeld``."""
        if self.held[uid] >= MOST_HELD:
            raise TooManyHeld
        return _Counted(self.held, uid, self.changed, uid)


class _Counted:
    """One more as long as it lasts. ``places``: where the counts go away when nothing is left."""

    __slots__ = ("_changed", "_counts", "_key", "_places", "_uid")

    def __init__(
        self,
        counts: Counter[str],
        key: str,
        changed: Callable[[str], None],
        uid: str,
        places: dict[str, Counter[str]] | None = None,
    ) -> None:
        self._counts, self._key, self._changed, self._uid = counts, key, changed, uid
        self._places = places

    def __enter__(self) -> None:
        self._counts[self._key] += 1
        self._changed(self._uid)

    def __exit__(self, *_: object) -> None:
        counts = self._counts
        counts[self._key] -= 1
        if not counts[self._key]:
            del counts[self._key]
            if not counts and self._places is not None and self._places.get(self._uid) is counts:
                del self._places[self._uid]
        self._changed(self._uid)


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
