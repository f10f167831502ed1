"""The Hub's proxy class: routes in one file, which Traefik reads.

Of ``jupyterhub-traefik-proxy`` comes all that talks to the Hub and to Traefik. Ours are how and
when the file is written, rules that quote names, and the page for a part that does not answer. What
we set ourselves is set at each start, so that a new address or a new key is not overruled by an old
file.
"""

import asyncio
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

# The package has no types.
from jupyterhub_traefik_proxy.fileprovider import (  # type: ignore[import-untyped]
    TraefikFileProviderProxy,
)
from jupyterhub_traefik_proxy.traefik_utils import generate_alias  # type: ignore[import-untyped]
from tornado.httpclient import HTTPClientError
from traitlets import Dict, Integer, Unicode, observe

from carrel_hub.front import traefik
from carrel_hub.front.group_writes import GroupWrites
from carrel_hub.front.rules import rule
from carrel_hub.state_folder import replace_file

UNAVAILABLE = "carrel-unavailable"
"""The middleware and the service that answer for a part that does not."""
MARK = "carrel-version"
"""A middleware that nobody uses; its header is the mark of the file's version."""
READY_PATH = "/ready"
"""The readiness probe of Traefik's pod: it answers on the internal port once it has routes."""
_CHECK_SECONDS = 0.1


class RoutesFile:
    """JSON, which is YAML too, for its owner alone; a reader sees the old one or the new one."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> dict[str, Any]:
        """The file's content. One that cannot be read counts as none: the Hub knows all routes."""
        try:
            found = json.loads(self._path.read_text())
        except ValueError as error:
            raise FileNotFoundError(f"{self._path} is no file of routes: {error}") from error
        if not isinstance(found, dict):
            raise FileNotFoundError(f"{self._path} is no file of routes")
        return found

    def atomic_dump(self, data: dict[str, Any]) -> None:
        """Replace the file."""
        replace_file(self._path, json.dumps(data, ensure_ascii=False).encode())


class FrontProxy(TraefikFileProviderProxy):  # type: ignore[misc]
    """See the module."""

    unavailable_url = Unicode(help="Where the page comes from that says what does not answer.").tag(
        config=True
    )
    provider_name = Unicode("file", help="How Traefik hears of routes: file or http.").tag(
        config=True
    )
    tls_certificate = Unicode(help="PEM file of the public port.").tag(config=True)
    tls_key = Unicode(help="PEM file of its key.").tag(config=True)
    beside = Dict(help="Routers, services and middlewares that stand beside routes.").tag(
        config=True
    )
    concurrency = Integer(
        1000, help="Routes that are added at once; they share versions of the file and questions."
    ).tag(config=True)
    dynamic_config: dict[str, Any]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._writes = GroupWrites(self._write_marked, self._ask_mark)

    @observe("dynamic_config_file")
    def _set_dynamic_config_file(self, change: Any) -> None:
        self.dynamic_config_handler = RoutesFile(Path(change.new))

    async def _wait_for_static_config(self) -> None:
        """Wait for Traefik's API, unless that is among the routes that it asks the Hub for.

        Such a Hub answers only once this has returned.
        """
        if self.provider_name != "http":
            await super()._wait_for_static_config()

    async def _setup_traefik_dynamic_config(self) -> None:
        """Add Carrel's own middlewares and services to the routes of the file."""
        http = self.dynamic_config["http"]
        ours = static_part(self)
        for kind, named in ours["http"].items():
            http[kind] = {**http.get(kind, {}), **named}
        self.dynamic_config["tls"] = ours["tls"]
        await self._apply_dynamic_config({}, None)

    async def _apply_dynamic_config(
        self, traefik_config: dict[str, Any], jupyterhub_config: dict[str, Any] | None = None
    ) -> None:
        found = self.dynamic_config
        for kind, named in traefik_config.get("http", {}).items():
            found["http"].setdefault(kind, {}).update(named)
        found["jupyterhub"]["routes"].update((jupyterhub_config or {}).get("routes", {}))
        await self._writes.write()

    async def _delete_dynamic_config(
        self, traefik_keys: Iterable[Sequence[str]], jupyterhub_keys: Iterable[Sequence[str]]
    ) -> None:
        for section, kind, name in traefik_keys:
            self.dynamic_config[section][kind].pop(name, None)
        for kind, name in jupyterhub_keys:
            self.dynamic_config["jupyterhub"][kind].pop(name, None)
        await self._writes.write()

    def _write_marked(self, mark: str) -> None:
        header = {"customRequestHeaders": {"X-Version": mark}}
        self.dynamic_config["http"].setdefault("middlewares", {})[MARK] = {"headers": header}
        self._persist_dynamic_config()

    async def _ask_mark(self) -> str:
        path = f"/api/http/middlewares/{MARK}@{self.provider_name}"
        try:
            found = json.loads((await self._traefik_api_request(path)).body)
            return str(found["headers"]["customRequestHeaders"]["X-Version"])
        except (HTTPClientError, OSError, ValueError, LookupError) as error:
            self.log.debug("Traefik does not say what it has read: %s", error)
            return ""

    async def _wait_for_route(self, routespec: str) -> None:
        """Wait until Traefik has the route. Raises ``TimeoutError``."""
        async with asyncio.timeout(self.check_route_timeout):
            await self._writes.until_read(self._writes.written)
            # One that Traefik refuses is read, but not enabled.
            while not await self._check_for_traefik_service(routespec, "router"):  # noqa: ASYNC110
                await asyncio.sleep(_CHECK_SECONDS)

    async def _check_for_traefik_service(self, routespec: str, kind: str) -> bool:
        """Whether Traefik has this route as the file has it now, not as it was before."""
        alias = generate_alias(self.validate_routespec(routespec), kind)
        wanted = self.dynamic_config["http"][f"{kind}s"].get(alias)
        try:
            path = f"/api/http/{kind}s/{alias}@{self.provider_name}"
            found = json.loads((await self._traefik_api_request(path)).body)
        except (HTTPClientError, OSError, ValueError) as error:
            self.log.debug("Traefik does not have the %s of %s yet: %s", kind, routespec, error)
            return False
        if wanted is None:  # deleted meanwhile
            return True
        return bool(found["rule"] == wanted["rule"] and found["status"] == "enabled")

    def _dynamic_config_for_route(
        self, routespec: str, target: str, data: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        traefik, hub = super()._dynamic_config_for_route(routespec, target, data)
        (router,) = traefik["http"]["routers"].values()
        router["rule"], router["priority"] = rule(routespec)
        router["middlewares"] = [UNAVAILABLE]
        return traefik, hub


def static_part(proxy: FrontProxy) -> dict[str, Any]:
    """The part of the file beside routes: Traefik's API for the Hub, the page, TLS."""
    credentials = f"{proxy.traefik_api_username}:{proxy.traefik_api_hashed_password}"
    page = {
        # 502: nobody listens there. 504: nobody answered in time.
        "errors": {
            "status": ["502", "504"],
            "statusRewrites": {"502": 503, "504": 503},
            "service": UNAVAILABLE,
            "query": "/services/gateway/unavailable",
        }
    }
    tls: dict[str, Any] = {"options": {"default": {"minVersion": "VersionTLS12"}}}
    if proxy.tls_certificate:
        files = {"certFile": proxy.tls_certificate, "keyFile": proxy.tls_key}
        tls["stores"] = {"default": {"defaultCertificate": files}}
    beside = {
        kind: dict(proxy.beside.get(kind, {})) for kind in ("routers", "services", "middlewares")
    }
    for router in beside["routers"].values():
        router |= {
            "entryPoints": [proxy.traefik_entrypoint],
            "middlewares": [UNAVAILABLE, *router.get("middlewares", ())],
        }
    return {
        "http": {
            "routers": beside["routers"]
            | {
                "carrel-api": {
                    "rule": 'PathPrefix("/api")',
                    "entryPoints": [traefik.INTERNAL],
                    "service": "api@internal",
                    "middlewares": ["carrel-api"],
                },
                # Traefik's own ``/ping`` answers before it has read any route.
                "carrel-ready": {
                    "rule": f'Path("{READY_PATH}")',
                    "entryPoints": [traefik.INTERNAL],
                    "service": "ping@internal",
                },
            },
            "middlewares": beside["middlewares"]
            | {"carrel-api": {"basicAuth": {"users": [credentials]}}, UNAVAILABLE: page},
            "services": beside["services"]
            | {UNAVAILABLE: {"loadBalancer": {"servers": [{"url": proxy.unavailable_url}]}}},
        },
        "tls": tls,
    }
