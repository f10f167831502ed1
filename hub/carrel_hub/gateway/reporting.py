"""Telling the scheduler how many requests each endpoint has: soon after a change, else rarely.

By these numbers it scales, and learns that a draining server has no requests left.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from carrel.client.transport import Transport
from carrel.errors import CarrelError
from carrel_hub.gateway.balancing import Balance
from carrel_hub.gateway.latency import Latencies
from carrel_hub.gateway.table import Place, Table

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.25
EVERYTHING_SECONDS: Final = 10.0
RATE_SECONDS: Final = 10


@dataclass(slots=True)
class Tally:
    """Requests of one place since we began; the last seconds one by one."""

    requests: int = 0
    errors: int = 0
    last_at: float | None = None
    lately: deque[list[float]] = field(default_factory=lambda: deque(maxlen=RATE_SECONDS))
    latencies: Latencies = field(default_factory=Latencies)

    def count(self, now: float) -> None:
        """A request came."""
        self.requests += 1
        self.last_at = now
        second = float(int(now))
        if not self.lately or self.lately[-1][0] != second:
            self.lately.append([second, 0.0])
        self.lately[-1][1] += 1.0

    def rate(self, now: float) -> float:
        """Requests in a second over the last ten."""
        recent = sum(one[1] for one in self.lately if one[0] > now - RATE_SECONDS)
        return recent / RATE_SECONDS


class Reporter:
    """See the module. ``clock`` gives epoch seconds."""

    def __init__(
        self, transport: Transport, table: Table, balance: Balance, clock: Callable[[], float]
    ) -> None:
        self._transport, self._table, self._balance = transport, table, balance
        self._clock = clock
        self._name = secrets.token_hex(8)
        self._tallies: dict[str, Tally] = {}
        self._dirty: set[str] = set()
        self._everything = False
        self._woken = asyncio.Event()

    def changed(self, uid: str) -> None:
        """Something about a place is to be told."""
        self._dirty.add(uid)
        self._woken.set()

    def tell_everything(self) -> None:
        """The table is complete, or the scheduler is another one."""
        self._everything = True
        self._woken.set()

    def came(self, uid: str) -> None:
        """A request came to a place."""
        tally = self._tallies.get(uid)
        if tally is None:
            tally = self._tallies[uid] = Tally()
        tally.count(self._clock())

    def ended(self, uid: str, *, failed: bool, seconds: float | None) -> None:
        """A request is answered, however long that took.

        Args:
            uid: of the place.
            failed: with an error of the server's side.
            seconds: until a server began to answer, if one did.
        """
        tally = self._tallies.get(uid)
        if tally is None:
            tally = self._tallies[uid] = Tally()
        now = tally.last_at = self._clock()
        tally.errors += failed
        if seconds is not None:
            tally.latencies.took(now, seconds)

    async def run(self) -> None:
        """Tell for ever, from when the table is complete."""
        while not self._everything:
            await self._woken.wait()
            self._woken.clear()
        while True:
            everything, self._everything = self._everything, False
            try:
                await self._tell(everything=everything)
            except CarrelError as error:
                log.warning("the scheduler was not told of requests: %s", error)
                self._everything = True
            await asyncio.sleep(PAUSE_SECONDS)
            try:
                async with asyncio.timeout(EVERYTHING_SECONDS):
                    await self._woken.wait()
            except TimeoutError:
                self._everything = True

    async def _tell(self, *, everything: bool) -> None:
        dirty, self._dirty = self._dirty, set()
        self._woken.clear()
        places = [one for one in self._table if everything or one.uid in dirty]
        if everything:
            known = {place.uid for place in places}
            self._tallies = {uid: one for uid, one in self._tallies.items() if uid in known}
        items = [self._item(place) for place in places]
        body = {"gateway": self._name, "everything": everything, "items": items}
        await self._transport.send("POST", "/gateway/loads", body=body, repeatable=True)

    def _item(self, place: Place) -> dict[str, Any]:
        tally = self._tallies.get(place.uid, Tally())
        in_flight = self._balance.at_place[place.uid]
        now = self._clock()
        busy = self._balance.at_targets(place.uid)
        ready = {one.uid for targets in place.targets.values() for one in targets}
        return {
            "uid": place.uid,
            "in_flight": in_flight,
            "rate": tally.rate(now),
            "requests": tally.requests,
            "errors": tally.errors,
            "latency": tally.latencies.lately(now),
            # Whoever holds a connection open is there.
            "last_request_at": now if in_flight else tally.last_at,
            "targets": {uid: busy.get(uid, 0) for uid in sorted(ready | set(busy))},
        }
