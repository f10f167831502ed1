"""Plays recorded answers of a real API server at a rate that the server itself can not reach here.

Lists and the events of a watch are taken from the server, byte by byte. The replayer is a
process of its own, with TLS, that answers those lists and sends those events again and again, each
with a version of its own and in a write of its own as the server does, so many in a second. What
the reader is measured on are the bytes; who sends them makes no difference to it.

``python -m benchmarks.kubernetes_replay FOLDER CERTIFICATE KEY RATE`` says its port, replays until
its input ends, and says how many events a second it could send.
"""

import asyncio
import re
import ssl
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from aiohttp import web

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.decoding import LineSplitter
from carrel_scheduler.kube.resources import Resource

_VERSION: Final = re.compile(rb'"resourceVersion":"(\d+)"')
_HIGH: Final = 1_000_000
"""Versions of what is replayed begin here, above all that were recorded."""
TICK_SECONDS: Final = 0.005


async def record_lists(client: KubeClient, paths: Sequence[str], to: Path) -> None:
    """Write lists into a folder, each as one page."""
    for path in paths:
        (to / quote(path, safe="")).write_bytes(await client.raw("GET", path))


async def record_events(
    client: KubeClient, resource: Resource, version: str, count: int
) -> list[bytes]:
    """Record so many events of a watch from a version on, as lines without bookmarks."""
    lines, events = LineSplitter(), []
    async for chunk in client.watch(resource, version):
        told = lines.feed(chunk)
        events += [one + b"\n" for one in told if not one.startswith(b'{"type":"BOOKMARK"')]
        if len(events) >= count:
            break
    return events[:count]


def write_events(events: Sequence[bytes], path: str, to: Path) -> None:
    """Write the events that a watch of this path replays."""
    (to / f"{quote(path, safe='')}.events").write_bytes(b"".join(events))


@dataclass
class Replayer:
    """See the module."""

    folder: Path
    rate: float
    reached: float = 0.0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """A list, or a watch."""
        name = quote(request.path, safe="")
        if "watch" not in request.query:
            body = (self.folder / name).read_bytes()
            return web.Response(body=body, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        events = self.folder / f"{name}.events"
        with suppress(ConnectionError):  # the client may close the connection
            if events.exists():
                await self.replay(events.read_bytes().splitlines(keepends=True), response)
            await asyncio.Event().wait()
        return response

    async def replay(self, events: list[bytes], response: web.StreamResponse) -> None:
        """Send events for ever, at the rate."""
        parts = [_VERSION.split(event, maxsplit=1) for event in events]
        began, number = time.perf_counter(), 0
        while True:
            due = int((time.perf_counter() - began) * self.rate)
            while number < due:
                before, _, after = parts[number % len(parts)]
                version = b'"resourceVersion":"%d"' % (_HIGH + number)
                await response.write(before + version + after)
                number += 1
            self.reached = number / max(TICK_SECONDS, time.perf_counter() - began)
            await asyncio.sleep(TICK_SECONDS)


async def replay(folder: Path, certificate: str, key: str, rate: float) -> None:
    """Serve until the input ends."""
    replayer = Replayer(folder, rate)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    app = web.Application()
    app.router.add_get("/{path:.*}", replayer.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    _say(runner.addresses[0][1])
    await asyncio.to_thread(sys.stdin.read)
    _say(replayer.reached)
    await runner.cleanup()


def _say(number: float) -> None:
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


class ReplayProcess:
    """A replayer as a process, from outside.

    Attributes:
        url: where it answers.
    """

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process, self.url = process, url

    @classmethod
    async def start(cls, folder: Path, authority: Path, rate: float) -> "ReplayProcess":
        """Start a replayer with the recorded server's certificate, whose key lies beside it."""
        words = (folder, authority, authority.with_suffix(".key"), rate)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "benchmarks.kubernetes_replay", *map(str, words)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        return cls(process, f"https://127.0.0.1:{port}")

    async def end(self) -> float:
        """Stop it, and return how many events a second it sent, from the first one on."""
        said, _ = await self._process.communicate(b"")
        return float(said)


def kubeconfig(of: Path, url: str, to: Path) -> Path:
    """The configuration ``of`` with another server."""
    text = of.read_text()
    server = re.search(r'"server": "([^"]*)"', text)
    assert server is not None
    assert urlsplit(url).scheme == "https"
    to.touch(mode=0o600)
    to.write_text(text.replace(server[1], url))
    return to


if __name__ == "__main__":
    asyncio.run(replay(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])))
