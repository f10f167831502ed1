"""The environment in which JupyterHub starts a service: where it listens and what it is told."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

API: Final = "http://127.0.0.1:8000/services/carrel"
"""The scheduler's address where ``CARREL_API_URL`` has none."""


class SettingsError(Exception):
    """A setting is missing or cannot be used; says which and what would be right."""


def listening(env: Mapping[str, str], default: str = "") -> tuple[str, int]:
    """The host and port of ``JUPYTERHUB_SERVICE_URL``. Raises ``SettingsError``."""
    address = urlsplit(env.get("JUPYTERHUB_SERVICE_URL", default))
    if address.scheme != "http" or not address.hostname or address.port is None:
        raise SettingsError(
            "JUPYTERHUB_SERVICE_URL must be http with a host and a port, such as "
            f"http://127.0.0.1:8070; it is {address.geturl()!r}"
        )
    return address.hostname, address.port


def need(env: Mapping[str, str], *names: str) -> None:
    """Require variables to be set; raises ``SettingsError`` that names those that are not."""
    if missing := [name for name in names if not env.get(name)]:
        raise SettingsError(
            f"{', '.join(missing)} must be set: JupyterHub starts this as one of its services"
        )


def api_url(env: Mapping[str, str]) -> str:
    """The scheduler's address, without a final slash."""
    return env.get("CARREL_API_URL", API).rstrip("/")


def hub_prefix(env: Mapping[str, str]) -> str:
    """The path of the Hub, with slashes at both ends."""
    return slashed(f"{env.get('JUPYTERHUB_BASE_URL', '/').rstrip('/')}/hub")


def slashed(path: str) -> str:
    """A path with slashes at both ends."""
    inner = path.strip("/")
    return f"/{inner}/" if inner else "/"
