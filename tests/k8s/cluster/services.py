"""Gives the services of a test cluster their virtual addresses, in place of a kube-proxy.

Each address is put on the bridge, where pods and the host find it, and connections to it are passed
on to a pod that is ready. The kernel's tables stay as they are, which several runs share, and
everything is gone with the bridge. TCP only.

``python -m k8s.cluster.services <interface> <kubeconfig>``
"""

import asyncio
import json
import random
import ssl
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp

from k8s.cluster import running
from k8s.cluster.plane import ControlPlane
from k8s.cluster.relay import relay

SERVICES: Final = "/api/v1/services"
SLICES: Final = "/apis/discovery.k8s.io/v1/endpointslices"
AGAIN_SECONDS: Final = 0.5
LONGEST_LINE: Final = 1 << 22
NAME_LABEL: Final = "kubernetes.io/service-name"
API_SERVER: Final = ("default", "kubernetes")
Objects = dict[str, Any]
Address = tuple[str, int]


class ServiceProxies:
    """The listening addresses, and the target of each connection."""

    def __init__(self, interface: str, api_server: Address) -> None:
        self._interface = interface
        self._api_server = api_server
        self._open: dict[Address, asyncio.Server] = {}
        self._ports: dict[Address, tuple[str, str, str]] = {}
        self.services: Objects = {}
        self.slices: Objects = {}

    async def settle(self) -> None:
        """Open the proxies that services have now and close the others."""
        self._ports = dict(_addresses(self.services.values()))
        for gone in self._open.keys() - self._ports.keys():
            self._open.pop(gone).close()
            if gone[0] not in {address for address, _ in self._ports}:
                await self._ip("del", gone[0])
        for address in self._ports.keys() - self._open.keys():
            if address[0] not in {address for address, _ in self._open}:
                await self._ip("replace", address[0])
            self._open[address] = await asyncio.start_server(self._entered(address), *address)

    def _entered(self, address: Address) -> Any:
        async def enter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            place = self._behind(address)
            if place is None:
                writer.close()
            else:
                await relay(reader, writer, *place)

        return enter

    def _behind(self, address: Address) -> Address | None:
        """A ready pod behind an address; ``None`` while there is none."""
        namespace, service, port = self._ports[address]
        if (namespace, service) == API_SERVER:
            return self._api_server
        places = [
            (address, int(offered["port"]))
            for part in self.slices.values()
            if part["metadata"]["namespace"] == namespace
            and part["metadata"].get("labels", {}).get(NAME_LABEL) == service
            for offered in part.get("ports") or []
            if offered.get("name", "") == port
            for endpoint in part.get("endpoints") or []
            if endpoint.get("conditions", {}).get("ready")
            for address in endpoint["addresses"]
        ]
        return random.choice(places) if places else None

    async def _ip(self, verb: str, address: str) -> None:
        words = ["ip", "address", verb, f"{address}/32", "dev", self._interface]
        process = await asyncio.create_subprocess_exec(*words)
        await process.wait()


def _addresses(services: Any) -> Iterator[tuple[Address, tuple[str, str, str]]]:
    for service in services:
        address = service["spec"].get("clusterIP", "None")
        if address in {"None", ""}:
            continue
        about = service["metadata"]
        for port in service["spec"].get("ports", []):
            if port.get("protocol", "TCP") == "TCP":
                named = (about["namespace"], about["name"], port.get("name", ""))
                yield (address, port["port"]), named


async def _follow(
    session: aiohttp.ClientSession, path: str, objects: Objects, changed: asyncio.Event
) -> None:
    """Keep a mirror of a collection; what breaks is listed again."""
    while True:
        with suppress(aiohttp.ClientError, KeyError, json.JSONDecodeError, TimeoutError):
            async with session.get(path) as answer:
                listed = await answer.json()
            objects.clear()
            objects.update({one["metadata"]["uid"]: one for one in listed["items"]})
            changed.set()
            version = listed["metadata"]["resourceVersion"]
            async with session.get(f"{path}?watch=1&resourceVersion={version}") as stream:
                async for line in stream.content:
                    _take(json.loads(line), objects)
                    changed.set()
        await asyncio.sleep(AGAIN_SECONDS)


def _take(event: Mapping[str, Any], objects: Objects) -> None:
    uid = event["object"]["metadata"]["uid"]
    if event["type"] == "DELETED":
        objects.pop(uid, None)
    else:
        objects[uid] = event["object"]


async def serve(interface: str, plane: ControlPlane) -> None:
    """Serve until cancelled."""
    at = urlsplit(plane.url)
    proxies = ServiceProxies(interface, (str(at.hostname), int(at.port or 443)))
    changed = asyncio.Event()
    trusted = ssl.create_default_context(cafile=str(plane.authority))
    async with (
        aiohttp.ClientSession(
            plane.url,
            headers={"Authorization": f"Bearer {plane.admin_token}"},
            connector=aiohttp.TCPConnector(ssl=trusted),
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=LONGEST_LINE,
        ) as session,
        asyncio.TaskGroup() as group,
    ):
        for path, objects in ((SERVICES, proxies.services), (SLICES, proxies.slices)):
            group.create_task(_follow(session, path, objects, changed))
        while True:
            await changed.wait()
            changed.clear()
            await proxies.settle()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        file = Path(sys.argv[2])
        asyncio.run(serve(sys.argv[1], running.read(file, file.parent)))
