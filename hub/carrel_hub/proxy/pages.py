"""What people see when nothing is there, or it does not answer: the Hub's page, else one line."""

import asyncio
from typing import Final
from urllib.parse import quote

import aiohttp
from aiohttp import web

# The package has no types.
from configurable_http_proxy import log  # type: ignore[import-untyped]

from carrel_hub.proxy.headers import end_to_end
from carrel_hub.proxy.options import Options

SENTENCES: Final = {
    404: "Nothing is at this address.",
    503: "What is at this address does not answer now. Try again in a moment.",
}
SECONDS: Final = 10.0


async def page(
    session: aiohttp.ClientSession, options: Options, code: int, path: str
) -> web.Response:
    """The answer for an error: 404 where no route is, 503 where a target does not answer.

    ``path`` is what was asked for, without its query, which may hold secrets.
    """
    if options.error_target:
        target = f"{options.error_target.rstrip('/')}/{code}?url={quote(path)}"
        made = await _from_target(session, target, code)
        if made is not None:
            return made
    elif options.error_path is not None:
        for name in (f"{code}.html", "error.html"):
            file = options.error_path / name
            if file.is_file():
                return web.Response(status=code, text=file.read_text(), content_type="text/html")
    return web.Response(status=code, text=f"{code}: {SENTENCES[code]}\n")


async def _from_target(
    session: aiohttp.ClientSession, target: str, code: int
) -> web.Response | None:
    try:
        async with asyncio.timeout(SECONDS), session.get(target, allow_redirects=False) as answer:
            body = await answer.read()
            headers = end_to_end(answer.headers, frozenset({"content-length"}))
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        log.warning("No page for %d from %s: %s", code, target.partition("?")[0], error)
        return None
    return web.Response(status=code, body=body, headers=headers)
