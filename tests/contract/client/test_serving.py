"""``carrel.serve`` as a process: what callers send, what functions do, and the end of it."""

import asyncio
import json
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from benchmarks.ports import free_port

TIMEOUT_SECONDS = 120.0
PROGRAM = """
import asyncio, sys, time, carrel

def add(a, b=1):
    if a == "bad":
        raise carrel.BadInput("a must be a number")
    return {"sum": a + b}

def one(value):
    return value

def pieces(count):
    for number in range(count):
        yield number
    if count == 2:
        raise RuntimeError("secret")

async def slow(seconds):
    print("asked", flush=True)
    await asyncio.sleep(seconds)
    return "done"

class Array:
    def tolist(self):
        return [1, 2]

def array(_):
    return Array()

carrel.serve(globals()[sys.argv[1]])
"""


class Served:
    """The process, and somebody who asks it."""

    def __init__(
        self, process: asyncio.subprocess.Process, url: str, session: aiohttp.ClientSession
    ) -> None:
        self.process, self.url, self.session = process, url, session

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.wait_for(self.process.stdout.readline(), TIMEOUT_SECONDS)).decode()

    async def post(self, data: Any, **headers: str) -> tuple[int, Any]:
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        async with self.session.post(self.url, data=body, headers=headers) as answer:
            return answer.status, await answer.json(content_type=None)


@asynccontextmanager
async def serving(folder: Path, name: str) -> AsyncIterator[Served]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    port = free_port()
    with (folder / "errors").open("wb") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(program), name),
            env={"PORT": str(port), "PATH": "", "PYTHONPATH": ":".join(sys.path)},
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
    async with aiohttp.ClientSession() as session:
        made = Served(process, f"http://127.0.0.1:{port}/", session)
        try:
            assert await made.line() == f"Serving {name} at http://127.0.0.1:{port}\n"
            yield made
        finally:
            if process.returncode is None:
                process.kill()
            await process.communicate()


async def test_arguments_and_mistakes(tmp_path: Path) -> None:
    async with serving(tmp_path, "add") as served:
        async with served.session.get(f"{served.url}healthz") as answer:
            assert (answer.status, await answer.json()) == (200, {"ok": True})
        assert await served.post({"a": 1, "b": 2}) == (200, {"sum": 3})
        assert await served.post(5) == (200, {"sum": 6})
        for given, status, code in (
            (b"{", 400, "malformed_json"),
            (b"\xff", 400, "malformed_json"),
            ({"c": 1}, 422, "wrong_arguments"),
            ({"a": "bad"}, 422, "bad_input"),
            ({"a": "x"}, 500, "function_failed"),
        ):
            answer_, problem = await served.post(given)
            assert (answer_, problem["code"]) == (status, code), given
        assert problem["id"] in (tmp_path / "errors").read_text()
        assert "str" not in problem["detail"]


@pytest.mark.parametrize("value", [[1, 2], {"x": 1}, "text", None])
async def test_one_value(tmp_path: Path, value: Any) -> None:
    async with serving(tmp_path, "one") as served:
        assert await served.post(value) == (200, value)


async def test_pieces_and_arrays(tmp_path: Path) -> None:
    async with serving(tmp_path, "pieces") as served:
        async with served.session.post(served.url, json={"count": 3}) as answer:
            assert await answer.text() == "0\n1\n2\n"
        headers = {"Accept": "text/event-stream"}
        async with served.session.post(served.url, json=[1][0], headers=headers) as answer:
            assert await answer.text() == "data: 0\n\n"
        with pytest.raises(aiohttp.ClientPayloadError):
            async with served.session.post(served.url, json=2) as answer:
                await answer.read()
    async with serving(tmp_path, "array") as served:
        assert await served.post(0) == (200, [1, 2])


async def test_it_finishes_what_is_under_way_when_told_to_stop(tmp_path: Path) -> None:
    async with serving(tmp_path, "slow") as served:
        asked = asyncio.create_task(served.post(1.5))
        assert await served.line() == "asked\n"
        served.process.send_signal(signal.SIGTERM)
        assert await asked == (200, "done")
        assert await asyncio.wait_for(served.process.wait(), TIMEOUT_SECONDS) == 0


async def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", f"import carrel; carrel.serve(len, port={port})"),
            env={"PYTHONPATH": ":".join(sys.path)},
            stderr=asyncio.subprocess.PIPE,
        )
        _, told = await asyncio.wait_for(process.communicate(), TIMEOUT_SECONDS)
    assert f"Port {port} is used already" in told.decode()
