"""``carrel.serve(function)``: an HTTP server for those who have only a function.

JSON in, JSON out, on the port that the platform chose (``PORT``). A function that yields answers
in pieces, one that is a coroutine runs in the event loop, any other in a thread. ``/healthz`` says
that it is there. On SIGTERM it takes nothing new and finishes what is under way.
"""

import asyncio
import errno
import inspect
import logging
import os
import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
from aiohttp import web

from carrel.errors import BadSetting, CarrelError

log = logging.getLogger("carrel.serve")

LARGEST_BODY: Final = 256 * 1024 * 1024
USUAL_PORT: Final = 8080
FINISH_SECONDS: Final = 3600.0
HEALTH: Final = "/healthz"
_END: Final = object()


class BadInput(CarrelError):  # noqa: N818 - reads as the fact it states
    """Raised by a served function: the caller's input is wrong; the sentence is sent to them."""


def serve(
    function: Callable[..., Any],
    *,
    port: int | None = None,
    host: str | None = None,
    threads: int = 1,
) -> None:
    """Serve a function until SIGTERM or Ctrl-C.

    Example::

        def digits(image: list[list[float]]) -> int:
            return int(model.predict(image))

        carrel.serve(digits)        # POST {"image": [[...]]} is answered with 7

    Args:
        function: called with what is posted: the keys of a JSON object as keyword arguments, any
            other value, and an object with other keys, as its one argument. It raises
            ``carrel.BadInput`` for what the caller did wrong.
        port: where to listen; by default ``PORT``, which the platform sets, or 8080.
        host: by default ``CARREL_HOST`` or this machine alone.
        threads: how many calls of a plain function run at once.

    Raises:
        BadSetting: the port is taken or cannot be read.
    """
    at = _port(port)
    address = host or os.environ.get("CARREL_HOST", "127.0.0.1")
    app = make_app(function, threads=threads)
    try:
        web.run_app(
            app,
            host=address,
            port=at,
            shutdown_timeout=FINISH_SECONDS,
            access_log=None,
            print=lambda *_: _say(f"Serving {_name(function)} at http://{address}:{at}"),
        )
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise BadSetting(
            f"Port {at} is used already; give another `port`, or leave it to PORT.",
            code="port_in_use",
        ) from error


def make_app(function: Callable[..., Any], *, threads: int = 1) -> web.Application:
    """The server as an aiohttp application."""
    app = web.Application(client_max_size=LARGEST_BODY)
    pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="serve")
    app.router.add_get(HEALTH, _health)
    app.router.add_post("/{path:.*}", _Served(function, pool).answer)
    app.router.add_get("/{path:.*}", _how_to)

    async def end(_: web.Application) -> None:
        pool.shutdown(wait=False, cancel_futures=True)

    app.on_cleanup.append(end)
    return app


class _Served:
    """A served function and how it is called."""

    def __init__(self, function: Callable[..., Any], pool: ThreadPoolExecutor) -> None:
        self._function, self._pool = function, pool
        self._signature = inspect.signature(function)
        called = function if inspect.isroutine(function) else type(function).__call__
        self._asynchronous = inspect.iscoroutinefunction(called)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a POST."""
        try:
            given = msgspec.json.decode(await request.read())
        except web.HTTPRequestEntityTooLarge:
            return _refusal(413, "too_large", f"At most {LARGEST_BODY // 2**20} MiB.")
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return _refusal(400, "malformed_json", f"The body is not JSON: {error}.")
        try:
            bound = _bind(self._signature, given)
        except TypeError as error:
            return _refusal(422, "wrong_arguments", _arguments(self._signature, error))
        try:
            result = await self._call(bound)
            if inspect.isasyncgen(result) or inspect.isgenerator(result):
                return await self._stream(request, result)
            return web.Response(body=_encoded(result), content_type="application/json")
        except BadInput as error:
            return _refusal(422, "bad_input", str(error))
        except Exception as error:  # noqa: BLE001 - whatever a user's function raises is answered
            return _broken(error)

    async def _call(self, bound: inspect.BoundArguments) -> Any:
        if self._asynchronous:
            return await self._function(*bound.args, **bound.kwargs)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._pool, lambda: self._function(*bound.args, **bound.kwargs)
        )

    async def _stream(
        self, request: web.Request, result: Iterator[Any] | AsyncIterator[Any]
    ) -> web.StreamResponse:
        """Lines of JSON, or server-sent events where the request accepts these.

        What fails before the first piece is refused like any other call.
        """
        pieces = result if isinstance(result, AsyncIterator) else self._threaded(result)
        first = await anext(pieces, _END)
        as_events = "text/event-stream" in request.headers.get("Accept", "")
        media = "text/event-stream" if as_events else "application/x-ndjson"
        response = web.StreamResponse(headers={"Content-Type": media, "X-Accel-Buffering": "no"})
        await response.prepare(request)
        piece = first
        try:
            while piece is not _END:
                line = _encoded(piece)
                await response.write(b"data: %b\n\n" % line if as_events else line + b"\n")
                piece = await anext(pieces, _END)
        except Exception as error:  # noqa: BLE001 - as above
            # The head has left: an end without an end tells that something is missing.
            problem = msgspec.json.encode(_failure(error))
            await response.write(b"event: error\ndata: %b\n\n" % problem if as_events else problem)
            if request.transport is not None:
                request.transport.abort()
            return response
        await response.write_eof()
        return response

    async def _threaded(self, result: Iterator[Any]) -> AsyncIterator[Any]:
        loop = asyncio.get_running_loop()
        try:
            while True:
                piece = await loop.run_in_executor(self._pool, next, result, _END)
                if piece is _END:
                    return
                yield piece
        finally:
            close = getattr(result, "close", None)
            if close is not None:
                await loop.run_in_executor(self._pool, close)


def _bind(signature: inspect.Signature, given: Any) -> inspect.BoundArguments:
    """Raises ``TypeError`` when what was posted is not what the function takes."""
    if isinstance(given, dict):
        try:
            return signature.bind(**given)
        except TypeError:
            if len(signature.parameters) != 1:
                raise
    return signature.bind(given)


def _arguments(signature: inspect.Signature, error: TypeError) -> str:
    names = ", ".join(f"`{name}`" for name in signature.parameters)
    return f"Post a JSON object with {names or 'nothing in it'}: {error}."


def _encoded(value: Any) -> bytes:
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> Any:
    """Arrays, tensors and their scalars as lists and numbers."""
    for name in ("tolist", "model_dump", "to_dict"):
        method = getattr(value, name, None)
        if callable(method):
            return method()
    raise NotImplementedError(f"a {type(value).__name__} is not JSON")


def _refusal(status: int, code: str, detail: str) -> web.Response:
    return _problem({"status": status, "code": code, "detail": detail})


def _broken(error: Exception) -> web.Response:
    return _problem(_failure(error))


def _failure(error: Exception) -> dict[str, Any]:
    """The exception goes to the log, its number to the caller."""
    number = secrets.token_hex(6)
    log.error("call %s failed", number, exc_info=error)
    detail = f"The function failed; its log has the details under {number}."
    return {"status": 500, "code": "function_failed", "detail": detail, "id": number}


def _problem(content: Mapping[str, Any]) -> web.Response:
    return web.Response(
        status=content["status"],
        body=msgspec.json.encode(content),
        content_type="application/problem+json",
    )


async def _health(_: web.Request) -> web.Response:
    return web.json_response({"ok": True})


async def _how_to(_: web.Request) -> web.Response:
    return _refusal(405, "method_not_allowed", "POST JSON to call the function.")


def _port(given: int | None) -> int:
    text = os.environ.get("PORT", "")
    if given is not None or not text:
        return USUAL_PORT if given is None else given
    if not text.isdecimal() or not 0 < int(text) < 65_536:
        raise BadSetting(f"PORT is {text!r}; it has to be a port number.", code="bad_port")
    return int(text)


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _say(text: str) -> None:
    """Write a line to the log of the replica, at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
