"""A server of tests: it answers with what it was asked, slowly, in pieces, or over a websocket."""

import asyncio
import json
import os
import signal

from aiohttp import web

VERSION = os.environ.get("VERSION", "1")


async def healthz(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def echo(request: web.Request) -> web.Response:
    body = await request.read()
    answer = {
        "path": request.raw_path,
        "method": request.method,
        "headers": dict(request.headers),
        "size": len(body),
        "version": VERSION,
        "pid": os.getpid(),
        "name": os.environ["CARREL_WORKLOAD"],
        "prefix": os.environ["CARREL_PREFIX"],
    }
    headers = [
        ("Set-Cookie", "own=1; Path=/"),
        ("Set-Cookie", "jupyterhub-session-id=stolen; Path=/"),
        ("Clear-Site-Data", '"cookies"'),
    ]
    response = web.json_response(answer)
    for name, value in headers:
        response.headers.add(name, value)
    return response


async def slow(request: web.Request) -> web.Response:
    await asyncio.sleep(float(request.query.get("seconds", "1")))
    return web.json_response({"version": VERSION, "pid": os.getpid()})


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for number in range(3):
        await response.write(f"data: {number}\n\n".encode())
        await request.app["next"].wait()
        request.app["next"].clear()
    await response.write_eof()
    return response


async def go_on(request: web.Request) -> web.Response:
    request.app["next"].set()
    return web.Response(text="ok")


async def socket(request: web.Request) -> web.WebSocketResponse:
    ws = web.WebSocketResponse(protocols=["chat"])
    await ws.prepare(request)
    async for message in ws:
        await ws.send_str(f"{request.headers['X-Forwarded-User']}: {message.data}")
    return ws


async def away(_: web.Request) -> web.Response:
    raise web.HTTPFound("/elsewhere")


async def crash(_: web.Request) -> web.Response:
    os.kill(os.getpid(), signal.SIGKILL)
    return web.Response()


async def complete(request: web.Request) -> web.StreamResponse:
    """The few words of OpenAI's protocol that its client needs."""
    asked = await request.json()
    words = ["Hello", " from", " Carrel"]
    if not asked.get("stream"):
        message = {"role": "assistant", "content": "".join(words)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return web.json_response(
            {
                "id": "1",
                "object": "chat.completion",
                "created": 1,
                "model": "m",
                "choices": [choice],
            }
        )
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for word in words:
        delta = {"role": "assistant", "content": word}
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
        await response.write(f"data: {json.dumps(chunk | {'choices': [choice]})}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


def main() -> None:
    app = web.Application(client_max_size=2**28)
    app["next"] = asyncio.Event()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/slow", slow)
    app.router.add_get("/stream", stream)
    app.router.add_post("/go-on", go_on)
    app.router.add_get("/ws", socket)
    app.router.add_get("/away", away)
    app.router.add_get("/crash", crash)
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_route("*", "/{path:.*}", echo)
    web.run_app(app, host="127.0.0.1", port=int(os.environ["PORT"]), print=None)


if __name__ == "__main__":
    main()
