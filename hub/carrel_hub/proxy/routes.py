"""The routing table: the package's, with activity in UTC whatever the machine's zone."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

# The package has no types.
from configurable_http_proxy import log  # type: ignore[import-untyped]
from configurable_http_proxy.configproxy import PythonProxy  # type: ignore[import-untyped]

from carrel_hub.proxy.options import Options


def utc_now() -> datetime:
    """This moment, with its zone."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes: all under ``prefix`` goes to ``target``."""

    prefix: str
    target: str


class Routes(PythonProxy):  # type: ignore[misc]  # it has no types
    """The table, and ``api_app``, the REST API to it."""

    def __init__(self, options: Options, now: Callable[[], datetime] = utc_now) -> None:
        self._now = now
        super().__init__(
            {
                "log": log,
                "auth_token": options.auth_token,
                "default_target": options.default_target,
                "host_routing": options.host_routing,
                "storage_backend": options.storage_backend,
            }
        )

    def find(self, path: str, host: str | None) -> Route | None:
        """The most specific route of a path, escaped or not; ``host`` only with host routing."""
        found = self.target_for_req(host if self.host_routing else None, path)
        return None if found is None else Route(found["prefix"], found["target"])

    def update_last_activity(self, prefix: str) -> None:
        """Somebody used what is under ``prefix``."""
        if self._routes.get(prefix):
            self._routes.update(prefix, {"last_activity": self._now()})

    def get_routes(self, inactive_since: datetime | None = None) -> dict[str, Any]:
        """All routes, or those unused since then; a time without a zone is UTC."""
        routes: dict[str, Any] = self._routes.get_all()
        if inactive_since is None:
            return routes
        since = inactive_since
        if since.tzinfo is None:
            since = since.replace(tzinfo=UTC)
        return {path: one for path, one in routes.items() if one["last_activity"] < since}
