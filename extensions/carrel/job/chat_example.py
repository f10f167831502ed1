"""A server that speaks as servers of language models do, and answers with what it was told.

``python -m carrel.job.chat_example`` listens on ``PORT``. It is the entry ``chat-example`` of the
model catalogue: with it one tries out an address, a token and a stream where no model can run. It
understands ``POST /v1/chat/completions``, with ``stream`` too, ``GET /v1/models`` and
``GET /health``.
"""

import asyncio
import json
import os
import time
import uuid
from typing import Any, Final

from aiohttp import web

MODEL: Final = "chat-example"
LARGEST_BODY: Final = 1024 * 1024


def reply_to(messages: Any) -> str:
    """The answer to a conversation. Raises ``ValueError`` for what is no conversation."""
    if not isinstance(messages, list) or not messages or not isinstance(messages[-1], dict):
        raise ValueError("`messages` is a list of at least one object with `role` and `content`")
    match messages[-1].get("content"):
        case str(said):
            return f"You said: {said}"
        case _:
            raise ValueError("`content` of the last message is a text")


def _of(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": MODEL,
        **content,
    }


async def complete(request: web.Request) -> web.StreamResponse:
    """Answer a conversation."""
    try:
        body = json.loads(await request.read())
        reply = reply_to(body.get("messages") if isinstance(body, dict) else None)
    except ValueError as error:
        problem = {"message": f"{error}.", "type": "invalid_request_error"}
        return web.json_response({"error": problem}, status=400)
    if body.get("stream"):
        return await _stream(request, reply)
    words = len(reply.split())
    asked = sum(len(str(one).split()) for one in body["messages"])
    choice = {"index": 0, "message": {"role": "assistant", "content": reply}}
    usage = {"prompt_tokens": asked, "completion_tokens": words, "total_tokens": asked + words}
    content = {"choices": [{**choice, "finish_reason": "stop"}], "usage": usage}
    return web.json_response(_of("chat.completion", content))


async def _stream(request: web.Request, reply: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    deltas: list[dict[str, str]] = [{"role": "assistant", "content": ""}]
    deltas += [{"content": f"{word} "} for word in reply.split()[:-1]]
    deltas += [{"content": reply.rsplit(maxsplit=1)[-1]}, {}]
    for delta in deltas:
        end = None if delta else "stop"
        choices = [{"index": 0, "delta": delta, "finish_reason": end}]
        piece = json.dumps(_of("chat.completion.chunk", {"choices": choices}))
        await response.write(f"data: {piece}\n\n".encode())
        await asyncio.sleep(0)
    await response.write(b"data: [DONE]\n\n")
    return response


async def models(_: web.Request) -> web.Response:
    """The one model."""
    return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})


async def health(_: web.Request) -> web.Response:
    """Answer the readiness probe."""
    return web.Response(text="ok")


def make_app() -> web.Application:
    """The server."""
    app = web.Application(client_max_size=LARGEST_BODY)
    app.router.add_post("/v1/chat/completions", complete)
    app.router.add_get("/v1/models", models)
    app.router.add_get("/health", health)
    return app


if __name__ == "__main__":
    host, port = os.environ.get("CARREL_HOST", "127.0.0.1"), int(os.environ.get("PORT", "8080"))
    web.run_app(make_app(), host=host, port=port, access_log=None)
