"""One request: to a server that takes it, another one when that does not answer, and back.

A request is tried again elsewhere when it never reached a server, or when repeating it means the
same and nothing was answered yet. What a server answers is passed on as it comes.
"""

import logging
import time
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from carrel_hub.gateway import safety
from carrel_hub.gateway.answers import not_there, refusal
from carrel_hub.gateway.balancing import Balance, TooManyHeld, servers
from carrel_hub.gateway.counts import Counts
from carrel_hub.gateway.door import Visit
from carrel_hub.gateway.reporting import Reporter
from carrel_hub.gateway.table import Place, Table, Target
from carrel_hub.proxy import plain, sockets
from carrel_hub.proxy.headers import add_forwarded, handshake_headers, request_headers
from carrel_hub.proxy.passage import Passage, UnreachableError

log = logging.getLogger(__name__)

# A request that kills whoever gets it must not reach them all.
MOST_REPEATS: Final = 1
REPEATABLE: Final = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE"})
VISIT: Final = web.RequestKey("visit", Visit)
TARGET: Final = web.RequestKey("target", Target)
ANSWERED: Final = web.RequestKey("answered", float)


@dataclass(slots=True)
class Attempt:
    """One try with one server; ``sent``: it may have seen the request."""

    sent: bool = False


_ATTEMPT: ContextVar[Attempt | None] = ContextVar("attempt", default=None)


def noting_what_was_sent() -> aiohttp.TraceConfig:
    """For the session to targets: the library itself asks again over a connection that was lost."""
    trace = aiohttp.TraceConfig()

    async def sent(_session: object, _context: object, _parameters: object) -> None:
        attempt = _ATTEMPT.get()
        if attempt is not None:
            attempt.sent = True

    trace.on_request_headers_sent.append(sent)
    return trace


class Passing:
    """See the module. ``session`` is the way to targets."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        table: Table,
        balance: Balance,
        counts: Counts,
        reporter: Reporter,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._session, self._table, self._balance = session, table, balance
        self._counts, self._reporter, self._clock = counts, reporter, clock

    async def pass_on(self, request: web.Request, visit: Visit) -> web.StreamResponse:
        """Answer a request that may come in."""
        place, begun = visit.place, self._clock()
        self._reporter.came(place.uid)
        request[VISIT] = visit
        status = 0
        try:
            with self._balance.request(place.uid):
                response = await self._answer(request, visit)
            status = response.status
            return response
        finally:
            self._reporter.ended(place.uid)
            if status >= 500:
                self._reporter.failed(place.uid)
            seconds = request.get(ANSWERED, self._clock()) - begun
            self._counts.answered(place.project, place.name, status, seconds)

    async def _answer(self, request: web.Request, visit: Visit) -> web.StreamResponse:
        most = visit.route.max_request_bytes
        if (request.content_length or 0) > most:
            return _too_large(request, most)
        try:
            place = await servers(self._table, self._balance, visit.place, visit.route_name)
        except TooManyHeld:
            return refusal(
                request,
                429,
                "too_many_held",
                "Too many requests wait for the first server of this endpoint already.",
                again=5,
            )
        if place is None or not place.targets.get(visit.route_name):
            return not_there(request, place or visit.place)
        return await self._try(request, visit, place)

    async def _try(self, request: web.Request, visit: Visit, place: Place) -> web.StreamResponse:
        body = _Bounded(request, visit.route.max_request_bytes)
        tried: set[str] = set()
        broke_off = 0
        error: UnreachableError | None = None
        while True:
            known = self._table.find(place.project, place.name) or place
            targets = known.targets.get(visit.route_name, ())
            target = self._balance.choose(place.uid, targets, tried)
            if target is None:
                return _gave_up(request, place, error)
            tried.add(target.uid)
            request[TARGET] = target
            attempt = Attempt()
            _ATTEMPT.set(attempt)
            try:
                with self._balance.at(place.uid, target):
                    return await self._once(request, visit, target, body)
            except UnreachableError as failure:
                error = failure
                del request[TARGET]
                log.info("%s does not answer: %s", target.base, failure)
                if body.exceeded:
                    return _too_large(request, visit.route.max_request_bytes)
                if _took_too_long(failure):
                    return _too_late(request, visit)
                if not attempt.sent:
                    continue
                broke_off += 1
                if broke_off > MOST_REPEATS or not _may_repeat(request):
                    return _broke_off(request)

    async def _once(
        self, request: web.Request, visit: Visit, target: Target, body: "_Bounded"
    ) -> web.StreamResponse:
        websocket = sockets.wanted(request)
        headers = (handshake_headers if websocket else request_headers)(request.headers)
        add_forwarded(headers, request.remote, request.scheme)
        safety.for_target(headers, visit.person.name, visit.prefix)
        path = visit.prefix + visit.rest if visit.route.keep_prefix else visit.rest
        passage = Passage(
            session=self._session,
            request=request,
            url=URL(target.base + path, encoded=True),
            headers=headers,
            seconds=visit.route.timeout_seconds,
            used=_nothing,
            body=body.pieces() if request.content_length is None and request.body_exists else None,
        )
        if websocket:
            return await sockets.pass_on(passage)
        return await plain.pass_on(passage)


async def keep_within(request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler: before the head of an answer leaves, keep it within its route."""
    visit, target = request.get(VISIT), request.get(TARGET)
    if visit is None or target is None:
        return
    request[ANSWERED] = time.perf_counter()
    headers: CIMultiDict[str] = response.headers
    safety.for_browser(
        headers,
        prefix=visit.prefix,
        base=target.base,
        keep_prefix=visit.route.keep_prefix,
        sandboxed=not visit.trusted,
    )


class _Bounded:
    """A request's body of unknown size, up to a limit."""

    def __init__(self, request: web.BaseRequest, most: int) -> None:
        self._request, self._left = request, most
        self.exceeded = False

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body; breaks off beyond the limit."""
        async for piece in self._request.content.iter_any():
            self._left -= len(piece)
            if self._left < 0:
                self.exceeded = True
                raise aiohttp.ClientPayloadError("the request is too large")
            yield piece


def _nothing() -> None:
    """Uses are counted elsewhere."""


def _may_repeat(request: web.Request) -> bool:
    """Whether sending it once more means the same."""
    return request.method in REPEATABLE and not request.body_exists


def _took_too_long(error: UnreachableError) -> bool:
    cause = error.__cause__
    return isinstance(cause, TimeoutError) and not isinstance(cause, aiohttp.ClientError)


def _too_large(request: web.BaseRequest, most: int) -> web.Response:
    size = f"{most / 2**20:g} MiB" if most >= 2**20 else f"{most:,} bytes"
    return refusal(
        request,
        413,
        "request_too_large",
        f"A request to this endpoint may have at most {size} (its `max_request_bytes`).",
    )


def _too_late(request: web.BaseRequest, visit: Visit) -> web.Response:
    return refusal(
        request,
        504,
        "target_timed_out",
        f"The server did not begin to answer within {visit.route.timeout_seconds:g} s "
        "(its `timeout_seconds`).",
    )


def _broke_off(request: web.BaseRequest) -> web.Response:
    return refusal(
        request,
        502,
        "target_broke_off",
        "The server hung up before it answered. The request may have been carried out, so it was "
        "not sent again.",
    )


def _gave_up(
    request: web.BaseRequest, place: Place, error: UnreachableError | None
) -> web.Response:
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
