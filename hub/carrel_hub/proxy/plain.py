"""One request and its answer, both passed on as they come.

Each side is read only as fast as the other takes it. When the person goes away the server cancels
the handler, which hangs up on the target.
"""

import asyncio
import contextlib

import aiohttp
from aiohttp import web

from carrel_hub.proxy.headers import end_to_end
from carrel_hub.proxy.passage import Passage, UnreachableError


async def pass_on(passage: Passage) -> web.StreamResponse:
    """Ask the target, answer the person; a success is a use at its begin and at its end.

    Raises ``UnreachableError`` while nothing has been answered yet.
    """
    request, upstream = passage.request, await _ask(passage)
    # Closing is right after a complete answer too: its connection has gone back by then.
    with contextlib.closing(upstream):
        success = upstream.status < 300
        if success:
            passage.used()
        response = web.StreamResponse(
            status=upstream.status, reason=upstream.reason, headers=end_to_end(upstream.headers)
        )
        await response.prepare(request)
        if await _copy(upstream, response):
            await response.write_eof()
            if success:
                passage.used()
        elif request.transport is not None:
            # The end of a body must not look like one that is whole.
            request.transport.abort()
        return response


async def _ask(passage: Passage) -> aiohttp.ClientResponse:
    request = passage.request
    own = request.content if request.body_exists else None
    try:
        async with asyncio.timeout(passage.seconds):
            return await passage.session.request(
                request.method,
                passage.url,
                headers=passage.headers,
                data=own if passage.body is None else passage.body,
                allow_redirects=False,
            )
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise UnreachableError(f"{type(error).__name__}: {error}") from error


async def _copy(upstream: aiohttp.ClientResponse, response: web.StreamResponse) -> bool:
    """Whether the body came whole and went whole."""
    try:
        async for chunk in upstream.content.iter_any():
            await response.write(chunk)
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False
    return True
