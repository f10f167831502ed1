"""The settings of the gateway: from the Hub that starts it, and the scheduler's address."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from carrel_hub import service_environment
from carrel_hub.service_environment import SettingsError

DEFAULT_PREFIX: Final = "/services/gateway/"


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
        host, port = service_environment.listening(env)
        service_environment.need(
            env, "JUPYTERHUB_API_TOKEN", "JUPYTERHUB_CLIENT_ID", "JUPYTERHUB_API_URL"
        )
        separate = env.get("CARREL_SEPARATE_ORIGINS") == "1"
        public_url = env.get("CARREL_PUBLIC_URL", "").rstrip("/") if separate else ""
        if separate and not urlsplit(public_url).hostname:
            raise SettingsError(
                "CARREL_PUBLIC_URL must be the Hub's address where CARREL_SEPARATE_ORIGINS is 1, "
                f"such as https://hub.example.org; it is {public_url!r}"
            )
        prefix = env.get("JUPYTERHUB_SERVICE_PREFIX", DEFAULT_PREFIX)
        return cls(
            prefix=service_environment.slashed(prefix),
            hub_prefix=service_environment.hub_prefix(env),
            hub_api_url=env["JUPYTERHUB_API_URL"].rstrip("/"),
            host=host,
            port=port,
            api_url=service_environment.api_url(env),
            client_id=env["JUPYTERHUB_CLIENT_ID"],
            service=env.get("JUPYTERHUB_SERVICE_NAME", "gateway"),
            public_url=public_url,
            token=env["JUPYTERHUB_API_TOKEN"],
        )
