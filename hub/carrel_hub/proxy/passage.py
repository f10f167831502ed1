"""What passing on needs to know, of one request."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL


class UnreachableError(Exception):
    """A target could not be reached, or hung up before it answered."""


@dataclass(frozen=True, slots=True)
class Passage:
    """A request and where it goes.

    Attributes:
        session: The way to targets.
        request: Of the person.
        url: At the target.
        headers: For the target.
        seconds: How long the target may take to begin its answer; ``None`` is for ever.
        used: Called when the target is used.
        body: Sent instead of the request's own.
    """

    session: aiohttp.ClientSession
    request: web.BaseRequest
    url: URL
    headers: CIMultiDict[str]
    seconds: float | None
    used: Callable[[], None]
    body: AsyncIterator[bytes] | None = None
