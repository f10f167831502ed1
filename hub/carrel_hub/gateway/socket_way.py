"""A request for a websocket: aiohttp speaks to both ends, message by message."""

import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from carrel_hub.gateway import safety
from carrel_hub.gateway.door import Visit
from carrel_hub.gateway.table import Target
from carrel_hub.proxy import sockets
from carrel_hub.proxy.headers import FORWARDED, HANDSHAKE, HOP, forwarded, kept
from carrel_hub.proxy.passage import Passage, UnreachableError
from carrel_hub.proxy.wire.line import TargetError

VISIT: Final = web.RequestKey("visit", Visit)
TARGET: Final = web.RequestKey("target", Target)
_DROPPED: Final = HOP | HANDSHAKE | FORWARDED | safety.NOT_FOR_TARGETS
ANSWERED: Final = web.RequestKey("answered", float)


@dataclass(slots=True)
class Attempt:
    """One try with one server; ``sent``: it may have seen the request."""

    sent: bool = False


_ATTEMPT: ContextVar[Attempt | None] = ContextVar("attempt", default=None)


def noting_what_was_sent() -> aiohttp.TraceConfig:
    """For the session to targets."""
    trace = aiohttp.TraceConfig()

    async def sent(_session: object, _context: object, _parameters: object) -> None:
        attempt = _ATTEMPT.get()
        if attempt is not None:
            attempt.sent = True

    trace.on_request_headers_sent.append(sent)
    return trace


class SocketWay:
    """See ``passing.Way``. ``response`` is what was answered in the end."""

    response: web.StreamResponse

    def __init__(self, request: web.Request, session: aiohttp.ClientSession) -> None:
        self.request, self._session = request, session
        self.answered_at: float | None = None
        self.exceeded = False

    def refuse(self, response: web.Response) -> int:
        """Answer without a server; the status."""
        self.response = response
        return response.status

    async def once(self, visit: Visit, target: Target) -> int:
        """One try, as long as the websocket is open. Raises ``TargetError``."""
        request = self.request
        request[VISIT], request[TARGET] = visit, target
        headers = CIMultiDict(kept(request.headers, _DROPPED))
        headers.extend(forwarded(request.headers, request.remote, request.scheme))
        headers.extend(safety.for_target(request.headers, visit.person.name, visit.prefix))
        path = visit.prefix + visit.rest if visit.route.keep_prefix else visit.rest
        attempt = Attempt()
        _ATTEMPT.set(attempt)
        passage = Passage(
            session=self._session,
            request=request,
            url=URL(target.base + path, encoded=True),
            headers=headers,
            seconds=visit.route.timeout_seconds,
            used=_nothing,
        )
        try:
            self.response = await sockets.pass_on(passage)
        except UnreachableError as error:
            del request[TARGET]
            late = isinstance(error.__cause__, TimeoutError) and not isinstance(
                error.__cause__, aiohttp.ClientError
            )
            raise TargetError(str(error), sent=attempt.sent, late=late) from error
        self.answered_at = request.get(ANSWERED)
        return self.response.status


async def keep_within(request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler: before the head of an answer leaves, keep it within its route."""
    visit, target = request.get(VISIT), request.get(TARGET)
    if visit is None or target is None:
        return
    request[ANSWERED] = time.perf_counter()
    headers: CIMultiDict[str] = response.headers
    within = safety.for_browser(
        tuple(headers.items()),
        prefix=visit.prefix,
        base=target.base,
        keep_prefix=visit.route.keep_prefix,
        sandboxed=not visit.trusted,
    )
    headers.clear()
    headers.extend(within)


def _nothing() -> None:
    """Uses are counted elsewhere."""
