"""A request that is none for a websocket, and its answer, both passed on as they come.

Each side is read only as fast as the other takes it. A connection to a server serves the next
request only when request and answer were complete; aiohttp frames both.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from carrel_hub.gateway import safety
from carrel_hub.gateway.door import Visit
from carrel_hub.gateway.headers import ANSWERED_HERE, FORWARDED, HOP, forwarded, kept
from carrel_hub.gateway.table import Target
from carrel_hub.gateway.upstream import Attempt, Upstreams

log = logging.getLogger(__name__)

_DROPPED: Final = HOP | ANSWERED_HERE | FORWARDED | safety.NOT_FOR_TARGETS


class _TooLargeError(Exception):
    """More came than may."""


class PlainWay:
    """See ``passing.Way``."""

    def __init__(self, request: web.Request, upstreams: Upstreams) -> None:
        self.request, self._upstreams = request, upstreams
        self.answered_at: float | None = None
        self.exceeded = False
        self._begun = False

    async def once(self, visit: Visit, target: Target) -> web.StreamResponse:
        """One try; the answer that was passed on. Raises ``TargetError``."""
        answer = await self._ask(visit, target)
        # Closing is right after a complete answer too: its connection has gone back by then.
        with contextlib.closing(answer):
            self.answered_at = time.perf_counter()
            headers = safety.for_browser(
                kept(CIMultiDict(answer.headers), HOP),
                prefix=visit.prefix,
                base=target.base,
                keep_prefix=visit.route.keep_prefix,
                sandboxed=not visit.own_origin,
            )
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=CIMultiDict(headers)
            )
            await response.prepare(self.request)
            await self._copy(answer, response, target)
            return response

    async def _ask(self, visit: Visit, target: Target) -> aiohttp.ClientResponse:
        request = self.request
        headers = CIMultiDict(kept(request.headers, _DROPPED))
        headers.extend(forwarded(request.headers, request.remote, request.scheme))
        headers.extend(safety.for_target(request.headers, visit.person.name, visit.prefix))
        path = visit.prefix + visit.rest if visit.route.keep_prefix else visit.rest
        seconds, attempt = visit.route.timeout_seconds, Attempt()
        try:
            async with asyncio.timeout(seconds) as limit:
                return await self._upstreams.session(target).request(
                    request.method,
                    URL(target.base + path, encoded=True),
                    headers=headers,
                    data=self._body(visit, limit) if request.body_exists else None,
                    allow_redirects=False,
                    trace_request_ctx=attempt,
                )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise attempt.failed(error) from error

    async def _body(self, visit: Visit, limit: asyncio.Timeout) -> AsyncIterator[bytes]:
        """The request's, once; a server's time begins anew with each piece."""
        if self._begun:
            raise RuntimeError("the body of this request was passed on before")
        self._begun = True
        loop, sent = asyncio.get_running_loop(), 0
        async for piece in self.request.content.iter_any():
            sent += len(piece)
            if sent > visit.route.max_request_bytes:
                self.exceeded = True
                raise _TooLargeError
            if self.answered_at is None:
                limit.reschedule(loop.time() + visit.route.timeout_seconds)
            yield piece

    async def _copy(
        self, answer: aiohttp.ClientResponse, response: web.StreamResponse, target: Target
    ) -> None:
        pieces = answer.content.iter_any()
        while True:
            try:
                piece = await anext(pieces, None)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                log.info("%s broke off: %s", target.base, error)
                if self.request.transport is not None:
                    # The end of a body must not look like one that is whole.
                    self.request.transport.abort()
                return
            if piece is None:
                break
            await response.write(piece)
        await response.write_eof()
