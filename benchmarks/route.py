"""The cost of the way in: a target asked directly, through Traefik, its peer and the gateway.

The target answers a request of 1 KiB with 1 KiB and does nothing else. Before it stand, in turns
of one run: nothing; Node's ``configurable-http-proxy``, JupyterHub's usual proxy; Traefik with the
configuration that ``carrel up`` gives it; and the gateway, which alone asks who comes (a token,
looked up once and remembered), whether they may, balances, counts and tells the scheduler of it.
Stand-ins of Hub and scheduler answer the gateway. Latency is that of one caller who asks again and
again over one connection; throughput that of 32.

``python -m benchmarks.route [--json] [--requests 2000] [--seconds 5] [--rounds 5]``
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import psutil
from aiohttp import web

from benchmarks.node_proxy import find_node_proxy
from benchmarks.ports import free_port
from benchmarks.report import Figure, median, show
from benchmarks.route_load import Caller, serve_target
from benchmarks.standin_hub import Account, StandInHub
from carrel_hub.front.routes import RoutesFile
from carrel_hub.front.rules import rule
from carrel_hub.front.traefik import PUBLIC, Listening, configuration, find_traefik, from_file

GOAL_MILLISECONDS = 2.0
CALLERS = 32
PATH = "/services/gateway/vision/target/"
READY_SECONDS = 60.0


@dataclass
class Side:
    """A way to the target, and its measurements."""

    name: str
    port: int
    path: str = "/"
    process: psutil.Process | None = None
    p50: list[float] = field(default_factory=list)
    p99: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    spent: list[float] = field(default_factory=list)

    def request(self) -> bytes:
        """The bytes of one request."""
        body = b"x" * 1024
        head = (
            f"POST {self.path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n"
            f"Authorization: Bearer ada\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def processor_seconds(self) -> float:
        """Used by its process so far."""
        if self.process is None:
            return 0.0
        times = self.process.cpu_times()
        return float(times.user + times.system)


class StandInScheduler:
    """Tells the gateway of one running workload, and takes what it counts."""

    def __init__(self, target: int) -> None:
        self._workload = {
            "name": "target",
            "project": "vision",
            "uid": "u1",
            "resource_version": 1,
            "spec": {"kind": "workspace", "user": "ada", "routes": [{"port": target}]},
            "status": {
                "phase": "running",
                "tasks": [{"index": 0, "node": "here", "ports": {"main": target}}],
            },
        }

    async def events(self, request: web.Request) -> web.StreamResponse:
        """Send one workload, and then nothing."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        data = json.dumps(self._workload)
        await response.write(f"event: workload\nid: 1\ndata: {data}\n\n".encode())
        await response.write(b"event: told\nid: 1\ndata: {}\n\n")
        with contextlib.suppress(ConnectionResetError):
            while True:
                await asyncio.sleep(10)
                await response.write(b": still here\n\n")
        return response

    async def loads(self, _: web.Request) -> web.Response:
        """Accept any report."""
        return web.Response(status=204)


@asynccontextmanager
async def child(command: Sequence[str], **more: str) -> AsyncIterator[psutil.Process]:
    """A process that is ended afterwards."""
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**os.environ, **more},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def sides(stack: AsyncExitStack) -> list[Side]:
    """Start all ways, each answering: directly, Node's proxy, Traefik, the gateway."""
    node = find_node_proxy()
    if node is None:
        sys.exit("Node's proxy is the measure: npm install -g configurable-http-proxy")
    target = free_port()
    command = [sys.executable, "-m", "benchmarks.route", "--target", str(target)]
    await stack.enter_async_context(child(command))
    found = [
        Side("directly", target),
        await _node(stack, node, target),
        await _traefik(stack, target),
        await _gateway(stack, target),
    ]
    for side in found:
        await _ready(side)
    return found


async def _node(stack: AsyncExitStack, command: Sequence[str], target: int) -> Side:
    port = free_port()
    where = [
        *("--ip", "127.0.0.1", "--port", str(port)),
        *("--api-ip", "127.0.0.1", "--api-port", str(free_port())),
        *("--default-target", f"http://127.0.0.1:{target}"),
    ]
    process = await stack.enter_async_context(
        child([*command, *where], CONFIGPROXY_AUTH_TOKEN="x")  # noqa: S106 - nobody sets routes
    )
    return Side("Node's proxy", port, process=process)


async def _traefik(stack: AsyncExitStack, target: int) -> Side:
    """Traefik as the product starts it, access log included, with one route to the target."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    (folder / "routes").mkdir()
    port = free_port()
    listening = Listening(
        public=f"127.0.0.1:{port}",
        internal=f"127.0.0.1:{free_port()}",
        access_log=folder / "access.log",
    )
    static = folder / "traefik.yaml"
    provider = from_file(folder / "routes")
    static.write_bytes(msgspec.json.encode(configuration(listening, provider)))
    text, priority = rule("/")
    router = {"rule": text, "priority": priority, "entryPoints": [PUBLIC], "service": "target"}
    server = {"loadBalancer": {"servers": [{"url": f"http://127.0.0.1:{target}"}]}}
    routes = {"http": {"routers": {"target": router}, "services": {"target": server}}}
    RoutesFile(folder / "routes" / "routes.yaml").atomic_dump(routes)
    process = await stack.enter_async_context(child([find_traefik(), f"--configFile={static}"]))
    return Side("front", port, process=process)


async def _gateway(stack: AsyncExitStack, target: int) -> Side:
    here = "access:services!service=gateway"
    hub = await stack.enter_async_context(
        StandInHub({"ada": Account("ada", (here,), {"project-vision"})})
    )
    scheduler = StandInScheduler(target)
    app = web.Application()
    app.router.add_get("/services/carrel/api/v1/events", scheduler.events)
    app.router.add_post("/services/carrel/api/v1/gateway/loads", scheduler.loads)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = free_port()
    process = await stack.enter_async_context(
        child(
            [sys.executable, "-m", "carrel_hub.gateway.app"],
            JUPYTERHUB_SERVICE_URL=f"http://127.0.0.1:{port}",
            JUPYTERHUB_SERVICE_PREFIX="/services/gateway/",
            JUPYTERHUB_API_URL=hub.url,
            JUPYTERHUB_API_TOKEN="gate",  # noqa: S106 - of the stand-in
            JUPYTERHUB_CLIENT_ID="service-gateway",
            CARREL_API_URL=f"http://127.0.0.1:{runner.addresses[0][1]}/services/carrel",
        )
    )
    return Side("gateway", port, PATH, process)


async def _ready(side: Side) -> None:
    headers = {"Authorization": "Bearer ada"}
    async with asyncio.timeout(READY_SECONDS), aiohttp.ClientSession() as session:
        while True:
            try:
                url = f"http://127.0.0.1:{side.port}{side.path}"
                async with session.post(url, data=b"x", headers=headers) as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)


async def turn(side: Side, requests: int, seconds: float) -> None:
    """Latency, then throughput, of one side."""
    caller = await Caller.connect(side.port, side.request())
    took = []
    for _ in range(requests):
        began = time.perf_counter()
        await caller.ask()
        took.append((time.perf_counter() - began) * 1000)
    caller.close()
    cuts = statistics.quantiles(took, n=100, method="inclusive")
    side.p50.append(cuts[49])
    side.p99.append(cuts[98])
    callers = [await Caller.connect(side.port, side.request()) for _ in range(CALLERS)]
    before, began = side.processor_seconds(), time.perf_counter()
    end = began + seconds
    done = await asyncio.gather(*(caller.ask_until(end) for caller in callers))
    side.rate.append(sum(done) / (time.perf_counter() - began))
    side.spent.append((side.processor_seconds() - before) / max(sum(done), 1) * 1000)
    for caller in callers:
        caller.close()


def figures(measured: Sequence[Side]) -> list[Figure]:
    """The figures of all ways; the front's throughput is measured by Node's proxy."""
    direct, node, front, gateway = measured
    found = []
    for side in (front, gateway):
        added = median(side.p50) - median(direct.p50)
        goal, met = f"<= {GOAL_MILLISECONDS:g}", added <= GOAL_MILLISECONDS
        found.append(Figure(f"added p50, {side.name}", added, "ms", goal, met=met))
    ratio = median(front.rate) / median(node.rate)
    found.append(Figure("throughput, front / Node's proxy", ratio, "x", ">= 1", met=ratio >= 1))
    ratio = median(gateway.rate) / median(node.rate)
    found.append(Figure("throughput, gateway / Node's proxy", ratio, "x", "-"))
    for side in measured:
        found += [
            Figure(f"p50 {side.name}", median(side.p50), "ms", "-"),
            Figure(f"p99 {side.name}", median(side.p99), "ms", "-"),
            Figure(f"throughput {side.name}", median(side.rate), "requests/s", "-"),
        ]
        if side.process is not None:
            found.append(Figure(f"processor {side.name}", median(side.spent), "ms/request", "-"))
    return found


async def run(options: Any) -> list[Figure]:
    """Run all rounds; the ways take turns."""
    async with AsyncExitStack() as stack:
        found = await sides(stack)
        for number in range(options.rounds):
            for side in found:
                await turn(side, options.requests, options.seconds)
            print(f"round {number + 1} of {options.rounds}, load {os.getloadavg()[0]:.1f}")
        return figures(found)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--target", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.target:
        asyncio.run(serve_target(options.target))
        return
    show("The way in", asyncio.run(run(options)), as_json=options.json)


if __name__ == "__main__":
    main()
