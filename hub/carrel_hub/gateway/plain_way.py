"""A request that is none for a websocket: on the wire, without a framework in between."""

import logging
import time
from functools import partial
from typing import Final

from aiohttp import web

from carrel_hub.gateway import safety
from carrel_hub.gateway.door import Visit
from carrel_hub.gateway.passing import may_repeat
from carrel_hub.gateway.table import Target
from carrel_hub.proxy.headers import FORWARDED, HOP, Pairs, forwarded, kept
from carrel_hub.proxy.wire.asked import Asked
from carrel_hub.proxy.wire.exchange import Exchange
from carrel_hub.proxy.wire.heads import FRAMING
from carrel_hub.proxy.wire.line import BrokenOffError, Line, TargetError
from carrel_hub.proxy.wire.lines import Lines

log = logging.getLogger(__name__)

_DROPPED: Final = HOP | FORWARDED | FRAMING | safety.NOT_FOR_TARGETS


class PlainWay:
    """See ``passing.Way``."""

    def __init__(self, exchange: Exchange, lines: Lines, most: int) -> None:
        self._exchange, self._lines = exchange, lines
        self.answered_at: float | None = None
        if exchange.asked.chunked:
            exchange.bound(most)

    @property
    def request(self) -> Asked:
        """Its head."""
        return self._exchange.asked

    @property
    def exceeded(self) -> bool:
        """Whether its body turned out to be too large."""
        return self._exchange.exceeded

    def refuse(self, response: web.Response) -> int:
        """Answer without a server; the status."""
        self._exchange.answer(response)
        return response.status

    async def once(self, visit: Visit, target: Target) -> int:
        """One try; the status of the answer that was passed on. Raises ``TargetError``.

        A server may hang up on a connection that was kept just when we ask over it; then it is
        asked again over a new one, where that means the same.
        """
        line = self._lines.kept(target)
        if line is not None:
            try:
                return await self._over(line, visit, target)
            except TargetError as error:
                if error.late or self.exceeded or not may_repeat(self.request):
                    raise
        try:
            fresh = await self._lines.connect(target, target.host, target.port)
        except TargetError as error:
            error.sent = line is not None
            raise
        return await self._over(fresh, visit, target)

    async def _over(self, line: Line, visit: Visit, target: Target) -> int:
        asked, exchange = self.request, self._exchange
        headers = kept(asked.headers, _DROPPED)
        headers += forwarded(asked.headers, asked.remote, asked.scheme)
        headers += safety.for_target(asked.headers, visit.person.name, visit.prefix)
        if not asked.modern and "Host" not in asked.headers:
            headers.append(("Host", f"{target.host}:{target.port}"))
        path = visit.prefix + visit.rest if visit.route.keep_prefix else visit.rest
        dress = partial(self._dress, visit, target)
        try:
            await exchange.pass_to(line, path, headers, visit.route.timeout_seconds, dress)
        except BrokenOffError as error:
            log.info("%s broke off: %s", target.base, error)
        return exchange.status

    def _dress(self, visit: Visit, target: Target, headers: Pairs) -> Pairs:
        self.answered_at = time.perf_counter()
        return safety.for_browser(
            headers,
            prefix=visit.prefix,
            base=target.base,
            keep_prefix=visit.route.keep_prefix,
            sandboxed=not visit.trusted,
        )
