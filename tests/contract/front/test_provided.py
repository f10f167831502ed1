"""Traefik on another machine: it asks the Hub for routes, its own API for the Hub among them."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPClientError
from tornado.httpserver import HTTPServer
from tornado.web import Application

from benchmarks.ports import free_ports
from carrel_hub.front.provided import PROVIDED_PATH, ProvidedRoutes
from carrel_hub.front.routes import READY_PATH, FrontProxy
from carrel_hub.front.traefik import Listening, configuration, find_traefik, from_hub
from carrel_hub.product import hashed

KEY: Final = "the-key-of-the-proxy"
TIMEOUT_SECONDS: Final = 60.0


@pytest.fixture
def ports() -> tuple[int, int, int]:
    """Of the public port, of Traefik's API and of the Hub."""
    public, internal, hub = free_ports(3)
    return public, internal, hub


@pytest.fixture
def traefik(tmp_path: Path, ports: tuple[int, int, int]) -> Iterator[subprocess.Popen[bytes]]:
    """Running, with nothing but where to ask; nobody answers there yet."""
    public, internal, hub = ports
    listening = Listening(public=f"127.0.0.1:{public}", internal=f"127.0.0.1:{internal}")
    provider = from_hub(f"http://127.0.0.1:{hub}/hub{PROVIDED_PATH}", KEY)
    static = tmp_path / "traefik.yaml"
    static.write_bytes(msgspec.json.encode(configuration(listening, provider)))
    with (tmp_path / "traefik.log").open("wb") as log:
        process = subprocess.Popen(
            [find_traefik(), f"--configFile={static}"], stdout=log, stderr=log
        )
    yield process
    process.terminate()
    process.wait(30)


@pytest.fixture
async def proxy(tmp_path: Path, ports: tuple[int, int, int]) -> Any:
    """The Hub's side, as a Hub on a cluster has it."""
    proxy: Any = FrontProxy(
        should_start=False,
        provider_name="http",
        public_url=f"http://127.0.0.1:{ports[0]}",
        traefik_api_url=f"http://127.0.0.1:{ports[1]}",
        traefik_api_username="hub",
        traefik_api_password=KEY,
        traefik_api_hashed_password=hashed(KEY),
        traefik_entrypoint="public",
        unavailable_url=f"http://127.0.0.1:{ports[2]}",
        check_route_timeout=int(TIMEOUT_SECONDS),
        dynamic_config_file=str(tmp_path / "routes.json"),
    )
    return proxy


async def test_a_hub_starts_though_only_it_can_open_the_proxys_api(
    tmp_path: Path, ports: tuple[int, int, int], traefik: subprocess.Popen[bytes], proxy: Any
) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while await _status(ports[1], "/ping") != 200:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        assert await _status(ports[1], READY_PATH) == 404  # no routes, so its pod is not ready
        assert await proxy.get_all_routes() == {}  # before the Hub listens, as the Hub does it
        told = {"file": tmp_path / "routes.json", "token": KEY}
        server = HTTPServer(Application([(f"/hub{PROVIDED_PATH}", ProvidedRoutes, told)]))
        server.listen(ports[2], "127.0.0.1")
        try:
            await proxy.add_route("/", f"http://127.0.0.1:{ports[2]}", {"hub": True})
            assert set(await proxy.get_all_routes()) == {"/"}
        finally:
            server.stop()
            await server.close_all_connections()
        assert await _status(ports[1], READY_PATH) == 200  # and stays so while the Hub is away


async def _status(port: int, path: str) -> int | None:
    """What a probe of the kubelet gets; nothing before somebody listens."""
    try:
        return (await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}{path}")).code
    except HTTPClientError as error:
        return error.code
    except OSError:
        return None
