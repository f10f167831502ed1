"""One connection of a caller: requests come in, one is answered at a time, in their order.

Bounded are what is kept of bodies and of further requests, and the time that a head may take, that
nothing may be asked, and that a body is read which nobody wants.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import web
from multidict import CIMultiDict
from typing_extensions import override

from carrel_hub.proxy.request import wants_websocket
from carrel_hub.proxy.wire.asked import Asked, RefusedError
from carrel_hub.proxy.wire.exchange import Exchange
from carrel_hub.proxy.wire.hearing import Hearing, again

log = logging.getLogger(__name__)

IDLE_SECONDS: Final = 75.0
UNWANTED_BODY_SECONDS: Final = 10.0

Serve = Callable[[Exchange], Awaitable[None]]
Refuse = Callable[[int, str, str], web.Response]


class Caller(asyncio.Protocol):
    """See the module.

    Args:
        serve: answers an exchange; cancelled when the caller goes away.
        refuse: the answer to a request that cannot be read: status, code and sentence.
        websockets: makes the protocol that takes over a connection for a websocket.
        known: all of these that are connected.
    """

    transport: asyncio.Transport

    def __init__(
        self,
        serve: Serve,
        refuse: Refuse,
        websockets: Callable[[], asyncio.Protocol],
        known: set["Caller"],
    ) -> None:
        self._serve, self._refuse, self._websockets = serve, refuse, websockets
        self._known = known
        self._loop = asyncio.get_running_loop()
        self.gone = self._loop.create_future()
        self._queue: deque[Exchange] = deque()
        self._task: asyncio.Task[None] | None = None
        self._holds: set[str] = set()
        self._deaf = self._clogged = False
        self._until = math.inf

    # What the caller sends.

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        peer = transport.get_extra_info("peername")
        self._hearing = Hearing(peer[0] if isinstance(peer, tuple) else None, self._open)
        self._known.add(self)
        self._until = self._loop.time() + IDLE_SECONDS
        self._timer = self._loop.call_later(IDLE_SECONDS, self._check)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._deaf = True
        self._queue.clear()
        if self._task is not None:
            self._task.cancel()

    @override
    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        switch = self._hearing.feed(data)
        if switch is not None:
            self._switch(*switch)
            return
        if self._hearing.refused is not None:
            self._hear_no_more()
        self._next()

    @override
    def pause_writing(self) -> None:
        self._clogged = True
        if self._queue:
            self._queue[0].hold_answer()

    @override
    def resume_writing(self) -> None:
        self._clogged = False
        if self._queue:
            self._queue[0].release_answer()
        self._next()

    def _open(self, asked: Asked) -> Exchange:
        exchange = Exchange(self, asked)
        self._queue.append(exchange)
        return exchange

    def _hear_no_more(self) -> None:
        """What came cannot be read; what was asked before it is answered still."""
        self._deaf = True
        broken, self._hearing.incoming = self._hearing.incoming, None
        if broken is None:
            return
        if broken.complete:
            self.transport.abort()
        elif broken is self._queue[0] and self._task is not None:
            self._task.cancel()
        else:
            self._queue.remove(broken)

    def _switch(self, asked: Asked, rest: bytes) -> None:
        """The caller would like to speak another protocol from here on."""
        self._upgrade = None
        if wants_websocket(asked) and not asked.body_exists and not self._queue:
            self._leave()
            handler = self._websockets()
            self.transport.set_protocol(handler)
            handler.connection_made(self.transport)
            handler.data_received(again(asked) + rest)
            return
        asked.headers.popall("Upgrade", None)
        self._hearing.afresh()
        self.data_received(again(asked) + rest)

    # One request after the other.

    def _next(self) -> None:
        if self.transport.is_closing():
            return
        if self._task is not None:
            if len(self._queue) > 1:
                self.hold("further requests")
            return
        if self._queue and self._queue[0].complete:
            self._settle(self._queue[0])
        elif self._queue and not self._clogged:
            self._until = math.inf
            self._task = self._loop.create_task(self._answer(self._queue[0]))
        elif self._hearing.refused is not None and not self._queue:
            self._last_words(self._hearing.refused)

    async def _answer(self, exchange: Exchange) -> None:
        try:
            await self._serve(exchange)
        except asyncio.CancelledError:
            if self._hearing.refused is None or self.transport.is_closing():
                self.transport.abort()
                raise
        except Exception:
            log.exception("%s %s", exchange.asked.method, exchange.asked.raw_path.partition("?")[0])
            if not exchange.status:
                exchange.answer(self._refuse(500, "internal", "The gateway made a mistake."))
        self._task = None
        if self.transport.is_closing():
            return
        if exchange.complete:
            self._settle(exchange)
        elif exchange.status or self._hearing.refused is None:
            # The end of an answer must not look like one that is whole.
            self.transport.abort()
        else:
            self._queue.popleft()
            self._next()

    def _settle(self, exchange: Exchange) -> None:
        """It is answered. On goes the connection, once its body was read to the end."""
        if not exchange.keep_alive:
            if exchange.whole:
                self.transport.close()
            elif not self._deaf:
                self._farewell()
            return
        if not exchange.whole:
            exchange.discard()
            self._within(UNWANTED_BODY_SECONDS)
            return
        self._queue.popleft()
        self._until = self._loop.time() + IDLE_SECONDS
        if len(self._queue) < 2:
            self.release("further requests")
        self._next()

    def _last_words(self, refused: RefusedError) -> None:
        asked = Asked(
            method="GET",
            raw_path="/",
            headers=CIMultiDict(),
            remote=None,
            content_length=None,
            chunked=False,
            keep_alive=False,
            modern=True,
        )
        Exchange(self, asked).answer(self._refuse(refused.status, refused.code, refused.detail))
        self._farewell()

    def _farewell(self) -> None:
        """A caller that still sends would not see the answer if we hung up now."""
        self._deaf = True
        self._holds.clear()
        self.transport.resume_reading()
        self.transport.write_eof()
        self._within(UNWANTED_BODY_SECONDS)

    def _leave(self) -> None:
        self._known.discard(self)
        self._timer.cancel()
        self.gone.set_result(None)

    # For exchanges.

    def write(self, data: bytes) -> None:
        """Send."""
        if not self.transport.is_closing():
            self.transport.write(data)

    def hold(self, why: str) -> None:
        """Read no more, until released for the same reason."""
        if not self._holds and not self.transport.is_closing():
            self.transport.pause_reading()
        self._holds.add(why)

    def release(self, why: str) -> None:
        """See ``hold``."""
        if why in self._holds:
            self._holds.discard(why)
            if not self._holds and not self.transport.is_closing():
                self.transport.resume_reading()

    # Time.

    @property
    def busy(self) -> asyncio.Task[None] | None:
        """What answers a request now."""
        return self._task

    def _within(self, seconds: float) -> None:
        """Hang up then, unless something else was decided before."""
        self._until = self._loop.time() + seconds
        self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._check)

    def _check(self) -> None:
        """Looks at the time now and then only, as most requests take less."""
        now = self._loop.time()
        if self._until <= now:
            self.transport.abort()
            return
        left = min(self._until - now, IDLE_SECONDS)
        self._timer = self._loop.call_later(left, self._check)
