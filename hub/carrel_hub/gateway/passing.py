"""One request: to a server that takes it, another one when that does not answer, and back.

A request is tried again elsewhere when it never reached a server, or when repeating it means the
same and nothing was answered yet. How it gets there, and the answer back, is the matter of a way:
``plain_way`` for requests, ``socket_way`` for websockets.
"""

import logging
import time
from collections.abc import Callable
from typing import Final, Protocol

from aiohttp import web

from carrel_hub.gateway.answers import not_there, refusal
from carrel_hub.gateway.balancing import Balance, TooManyHeld, servers
from carrel_hub.gateway.counts import Counts
from carrel_hub.gateway.door import Visit
from carrel_hub.gateway.headers import Request
from carrel_hub.gateway.reporting import Reporter
from carrel_hub.gateway.table import Place, Table, Target
from carrel_hub.gateway.upstream import TargetError

log = logging.getLogger(__name__)

# A request that kills whoever gets it must not reach them all.
MOST_REPEATS: Final = 1
REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})


class Way(Protocol):
    """How one request reaches servers.

    Attributes:
        request: of the person.
        answered_at: when a server began to answer, by ``time.perf_counter``.
        exceeded: its body turned out to be too large.
    """

    request: web.Request
    answered_at: float | None
    exceeded: bool

    async def once(self, visit: Visit, target: Target) -> web.StreamResponse:
        """One try; the answer that was passed on. Raises ``TargetError``."""
        ...


class Passing:
    """See the module."""

    def __init__(
        self,
        table: Table,
        balance: Balance,
        counts: Counts,
        reporter: Reporter,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._table, self._balance = table, balance
        self._counts, self._reporter, self._clock = counts, reporter, clock

    async def pass_on(self, way: Way, visit: Visit) -> web.StreamResponse:
        """Answer a request that may come in."""
        place, begun = visit.place, self._clock()
        self._reporter.came(place.uid)
        status = 0
        try:
            with self._balance.request(place.uid):
                response = await self._answer(way, visit)
                status = response.status
                return response
        finally:
            seconds = (way.answered_at or self._clock()) - begun
            self._counts.answered(place.project, place.name, status, seconds)
            measured = seconds if way.answered_at is not None and status else None
            self._reporter.ended(place.uid, failed=status >= 500, seconds=measured)

    async def _answer(self, way: Way, visit: Visit) -> web.StreamResponse:
        most = visit.route.max_request_bytes
        if (way.request.content_length or 0) > most:
            return _too_large(way.request, most)
        try:
            place = await servers(self._table, self._balance, visit.place, visit.route_name)
        except TooManyHeld:
            return _too_many(way.request)
        if place is None or not place.targets.get(visit.route_name):
            return not_there(way.request, place or visit.place)
        return await self._try(way, visit, place)

    async def _try(self, way: Way, visit: Visit, place: Place) -> web.StreamResponse:
        tried: set[str] = set()
        broke_off = 0
        error: TargetError | None = None
        while True:
            known = self._table.find(place.project, place.name) or place
            targets = known.targets.get(visit.route_name, ())
            target = self._balance.choose(place.uid, targets, tried)
            if target is None:
                return _gave_up(way.request, place, error)
            tried.add(target.uid)
            try:
                with self._balance.at(place.uid, target):
                    return await way.once(visit, target)
            except TargetError as failure:
                error = failure
                log.info("%s does not answer: %s", target.base, failure)
                if way.exceeded:
                    return _too_large(way.request, visit.route.max_request_bytes)
                if failure.late:
                    return _too_late(way.request, visit)
                if not failure.sent:
                    continue
                broke_off += 1
                if broke_off > MOST_REPEATS or not may_repeat(way.request):
                    return _broke_off(way.request)


def may_repeat(request: Request) -> bool:
    """Whether sending it once more means the same."""
    return request.method in REPEATABLE and not request.body_exists


def _too_many(request: Request) -> web.Response:
    return refusal(
        request,
        429,
        "too_many_held",
        "Too many requests wait for the first server of this endpoint already.",
        again=5,
    )


def _too_large(request: Request, most: int) -> web.Response:
    size = f"{most / 2**20:g} MiB" if most >= 2**20 else f"{most:,} bytes"
    return refusal(
        request,
        413,
        "request_too_large",
        f"A request to this endpoint may have at most {size} (its `max_request_bytes`).",
    )


def _too_late(request: Request, visit: Visit) -> web.Response:
    return refusal(
        request,
        504,
        "target_timed_out",
        f"The server did not begin to answer within {visit.route.timeout_seconds:g} s "
        "(its `timeout_seconds`).",
    )


def _broke_off(request: Request) -> web.Response:
    return refusal(
        request,
        502,
        "target_broke_off",
        "The server hung up before it answered. The request may have been carried out, so it was "
        "not sent again.",
    )


def _gave_up(request: Request, place: Place, error: TargetError | None) -> web.Response:
    if error is None:
        return not_there(request, place)
    return refusal(
        request,
        503,
        "target_unreachable",
        f"No server of {place.project}/{place.name} accepts connections at its port now; it may "
        "have just started, or ended.",
        again=2,
    )
