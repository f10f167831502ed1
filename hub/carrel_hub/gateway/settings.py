"""What the gateway is told from outside: by the Hub that starts it, and where the scheduler is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

DEFAULT_API: Final = "http://127.0.0.1:8000/services/carrel"
DEFAULT_PREFIX: Final = "/services/gateway/"


class SettingsError(Exception):
    """A setting is missing or cannot be used; says which and what would be right."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Addresses and keys.

    Attributes:
        prefix: path of the gateway behind the proxy, with slashes at both ends.
        hub_prefix: path of the Hub, likewise.
        hub_api_url: where the Hub's API answers, without a final slash.
        host, port: where to listen.
        api_url: the scheduler service, without a final slash.
        client_id: of the Hub's OAuth.
        service: the name by which the Hub knows this service.
        public_url: the Hub's own origin, where every route has one of its own below it; empty: all
            share the Hub's.
        node_host: where tasks of this machine listen.
        token: the service's own Hub token.
    """

    prefix: str
    hub_prefix: str
    hub_api_url: str
    host: str
    port: int
    api_url: str
    client_id: str
    service: str = "gateway"
    public_url: str = ""
    node_host: str = "127.0.0.1"
    token: str = field(default="", repr=False)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "GatewaySettings":
        """Read the environment of a JupyterHub service. Raises ``SettingsError``."""
        address = urlsplit(env.get("JUPYTERHUB_SERVICE_URL", ""))
        if address.scheme != "http" or not address.hostname or address.port is None:
            raise SettingsError(
                "JUPYTERHUB_SERVICE_URL must be http with a host and a port, such as "
                f"http://127.0.0.1:8070; it is {address.geturl()!r}"
            )
        names = ("JUPYTERHUB_API_TOKEN", "JUPYTERHUB_CLIENT_ID", "JUPYTERHUB_API_URL")
        missing = [name for name in names if not env.get(name)]
        if missing:
            raise SettingsError(
                f"{', '.join(missing)} must be set: the gateway is started as a service of the Hub"
            )
        separate = env.get("CARREL_SEPARATE_ORIGINS") == "1"
        public_url = env.get("CARREL_PUBLIC_URL", "").rstrip("/") if separate else ""
        if separate and not urlsplit(public_url).hostname:
            raise SettingsError(
                "CARREL_PUBLIC_URL must be the Hub's address where CARREL_SEPARATE_ORIGINS is 1, "
                f"such as https://hub.example.org; it is {public_url!r}"
            )
        base = env.get("JUPYTERHUB_BASE_URL", "/").rstrip("/")
        return cls(
            prefix=_slashed(env.get("JUPYTERHUB_SERVICE_PREFIX", DEFAULT_PREFIX)),
            hub_prefix=_slashed(f"{base}/hub"),
            hub_api_url=env["JUPYTERHUB_API_URL"].rstrip("/"),
            host=address.hostname,
            port=address.port,
            api_url=env.get("CARREL_API_URL", DEFAULT_API).rstrip("/"),
            client_id=env["JUPYTERHUB_CLIENT_ID"],
            service=env.get("JUPYTERHUB_SERVICE_NAME", "gateway"),
            public_url=public_url,
            token=env["JUPYTERHUB_API_TOKEN"],
        )


def _slashed(path: str) -> str:
    inner = path.strip("/")
    return f"/{inner}/" if inner else "/"
