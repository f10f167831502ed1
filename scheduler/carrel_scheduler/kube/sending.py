"""Requests that are sent again until they are answered or given up; refusals become errors.

* 429 is always retried, after the pause that the server asks for: nothing was done. But that of a
  PodDisruptionBudget is an answer, not a lack of capacity, and goes to the caller.
* No answer, or 5xx: reads, and writes that may be done twice without harm, are retried. Other
  writes only if they did not leave this process.
* Missing credentials (a token that is just being replaced, a plugin that fails) count as no answer.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from enum import Enum
from typing import Final

import aiohttp

from carrel_scheduler.backoff import Backoff, Jitter
from carrel_scheduler.kube.credentials import CredentialsUnusable
from carrel_scheduler.kube.errors import (
    BUDGET_CAUSE,
    KubeError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    decode_status,
    from_status,
)
from carrel_scheduler.kube.transport import (
    ApiServerUnreachable,
    HandshakeRefused,
    HttpRequest,
    KubeResponse,
    KubeTransport,
    retry_after,
)

TRIES: Final = 5
TRIES_WITHOUT_ROOM: Final = 12


class Resend(Enum):
    """Whether a request may be repeated when its response is lost."""

    SAFE = "safe"
    UNSENT_ONLY = "unsent_only"


def pause_after(error: KubeError, backoff: Backoff, repeat: Resend, *, sent: bool) -> float | None:
    """Seconds until the next try, or ``None`` when the error goes to the caller.

    Args:
        error: what the request met.
        backoff: of this request; counts its failures.
        repeat: whether it may be done twice.
        sent: it may have reached the server.
    """
    if isinstance(error, TooManyRequests):
        if _is_budget(error) or backoff.failures >= TRIES_WITHOUT_ROOM:
            return None
        return error.retry_after + backoff.next()  # not all clients in the same moment
    if not isinstance(error, Unavailable) or backoff.failures >= TRIES:
        return None
    if sent and repeat is Resend.UNSENT_ONLY:
        return None
    return error.details.retry_after_seconds + backoff.next()


def _is_budget(error: TooManyRequests) -> bool:
    return any(cause.reason == BUDGET_CAUSE for cause in error.details.causes or ())


SECONDS: Final = 30.0
_HTTP_ERROR: Final = 400


class RequestSender:
    """Sends requests over a transport.

    Args:
        transport: carries them.
        chance: jitter of the pauses between tries, in [0, 1).
        pause: waits so many seconds.
    """

    def __init__(
        self,
        transport: KubeTransport,
        chance: Jitter = random.random,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._transport = transport
        self._chance = chance
        self._pause = pause

    async def send(
        self, request: HttpRequest, repeat: Resend = Resend.SAFE, seconds: float = SECONDS
    ) -> bytes:
        """The body of the answer.

        Args:
            request: what to send.
            repeat: whether it may be sent again when the answer is lost.
            seconds: for each try.

        Raises:
            KubeError: what the last try met.
        """
        backoff = Backoff(self._chance)
        retried = False
        while True:
            sent = True
            try:
                answer = await self._transport.send(request, seconds)
                if answer.status < _HTTP_ERROR:
                    return answer.body
                error = error_of(answer)
            except ApiServerUnreachable as unreachable:
                error, sent = unavailable(unreachable), unreachable.sent
            except CredentialsUnusable as unusable:
                error, sent = _without_credentials(unusable), False
            error.retried = retried
            pause = pause_after(error, backoff, repeat, sent=sent)
            if pause is None:
                raise error
            retried |= sent and isinstance(error, Unavailable)
            await self._pause(pause)

    async def stream(self, request: HttpRequest) -> AsyncGenerator[bytes]:
        """The body of the response as it arrives; never repeated."""
        try:
            async with self._transport.stream(request) as response:
                if response.status >= _HTTP_ERROR:
                    body = await response.read()
                    raise error_of(KubeResponse(response.status, body, retry_after(response)))
                async for chunk in response.content.iter_any():
                    yield chunk
        except ApiServerUnreachable as error:
            raise unavailable(error) from error
        except CredentialsUnusable as error:
            raise _without_credentials(error) from error

    async def websocket(self, path: str, protocol: str) -> aiohttp.ClientWebSocketResponse:
        """A websocket; never repeated."""
        try:
            return await self._transport.websocket(path, protocol)
        except ApiServerUnreachable as error:
            raise unavailable(error) from error
        except CredentialsUnusable as error:
            raise _without_credentials(error) from error
        except HandshakeRefused as error:
            raise error_of(KubeResponse(error.status, str(error).encode())) from error

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()


def error_of(answer: KubeResponse) -> KubeError:
    """The error in an answer."""
    status = decode_status(answer.body, answer.status)
    return from_status(status, answer.status, answer.retry_after)


def unavailable(error: ApiServerUnreachable) -> Unavailable:
    """The error for no answer."""
    return Unavailable(0, "Unreachable", str(error))


def _without_credentials(error: CredentialsUnusable) -> KubeError:
    """A request that was refused raises the refusal, though it was not sent again."""
    if error.refused:
        return Unauthorized(401, "Unauthorized", str(error))
    return Unavailable(0, "CredentialsUnusable", str(error))
