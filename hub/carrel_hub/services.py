"""The services of the Hub: how they are registered, and what their processes are told.

Two ways to run the same processes: the Hub starts them (``managed``), or somebody else does and
gives them the same variables.
"""

import json
import sys
from typing import Any, Final, Protocol

from carrel_hub import scopes
from carrel_hub.keys import Keys
from carrel_hub.settings import InstallationSettings

# The Hub begins its own work only after it waited for each service, and gives it its route anyway.
AWAITED_SECONDS: Final = 1


class PartAddresses(Protocol):
    """Addresses at which the parts of an installation reach each other."""

    @property
    def public_url(self) -> str:
        """The address that users open."""
        ...

    @property
    def hub_url(self) -> str:
        """The Hub itself."""
        ...

    @property
    def scheduler_url(self) -> str:
        """The scheduler's service itself, not through the proxy."""
        ...

    @property
    def console_url(self) -> str:
        """The console's service itself."""
        ...

    @property
    def gateway_url(self) -> str:
        """The gateway's service itself."""
        ...

    @property
    def api_url(self) -> str:
        """The scheduler's address for clients, without ``/api/v1``."""
        ...

    @property
    def separate_origins(self) -> bool:
        """Whether servers and routes have origins of their own, below the Hub's host."""
        ...

    @property
    def demo(self) -> bool:
        """Whether homes get the demo notebooks."""
        ...


def commands() -> dict[str, list[str]]:
    """The commands of the services with a process.

    ``-P`` keeps the folder that it was started from off the import path: what is on the scheduler's
    path is shown to tasks, and that folder may be somebody's home.
    """
    return {
        scopes.SCHEDULER: [sys.executable, "-P", "-m", "carrel_scheduler.service"],
        scopes.CONSOLE: [sys.executable, "-P", "-m", "carrel_hub.console.app"],
        scopes.GATEWAY: [sys.executable, "-P", "-m", "carrel_hub.gateway.app"],
    }


def registrations(settings: PartAddresses, keys: Keys) -> list[dict[str, Any]]:
    """``c.JupyterHub.services``."""
    scheduler: dict[str, Any] = {
        "name": scopes.SCHEDULER,
        "url": settings.scheduler_url,
        "api_token": keys.scheduler,
        "display": False,
    }
    # Paths: services have the Hub's own host, also where users' servers have others.
    callback = "/services/{}/oauth_callback".format
    console: dict[str, Any] = {
        "name": scopes.CONSOLE,
        "url": settings.console_url,
        "api_token": keys.console,
        "display": False,
        "oauth_no_confirm": True,
        "oauth_redirect_uri": callback(scopes.CONSOLE),
        "oauth_client_allowed_scopes": scopes.AT_THE_CONSOLE,
    }
    gateway: dict[str, Any] = {
        "name": scopes.GATEWAY,
        "url": settings.gateway_url,
        "api_token": keys.gateway,
        "display": False,
        "oauth_no_confirm": True,
        "oauth_redirect_uri": callback(scopes.GATEWAY),
        "oauth_client_allowed_scopes": scopes.AT_THE_GATEWAY,
    }
    if isinstance(settings, InstallationSettings) and settings.managed:
        for service in (scheduler, console, gateway):
            service["command"] = commands()[service["name"]]
            service["environment"] = carrel_environment(settings, service["name"])
    else:
        for service in (scheduler, console, gateway):
            service["timeout"] = AWAITED_SECONDS
    found = [
        scheduler,
        console,
        gateway,
        {"name": scopes.SPAWNER, "api_token": keys.spawner, "display": False},
        {"name": scopes.SETUP, "api_token": keys.setup, "display": False},
    ]
    if keys.metrics:
        found.append({"name": scopes.PROMETHEUS, "api_token": keys.metrics, "display": False})
    return found


def carrel_environment(settings: PartAddresses, service: str) -> dict[str, str]:
    """Environment variables of a service beyond those that the Hub gives every service."""
    shared = {
        "CARREL_URL": settings.api_url,
        "CARREL_API_URL": settings.api_url,
        "CARREL_PUBLIC_URL": settings.public_url,
    }
    if service == scopes.GATEWAY:
        return shared | ({"CARREL_SEPARATE_ORIGINS": "1"} if settings.separate_origins else {})
    if service != scopes.SCHEDULER or not isinstance(settings, InstallationSettings):
        return shared
    gpus = settings.gpus
    told = {
        "CARREL_GATEWAY_URL": f"{settings.gateway_url}/services/{scopes.GATEWAY}",
        "CARREL_FRONT_URL": settings.front_url,
        "CARREL_STATE_DIR": str(settings.state_dir),
        "CARREL_DATABASE_URL": settings.database_url,
        "CARREL_GPUS": "" if gpus.count is None else str(gpus.count),
        "CARREL_GPU_MEMORY_MIB": "" if gpus.memory_mib is None else str(gpus.memory_mib),
        "CARREL_GPU_NAME": gpus.name or "",
        "CARREL_MIG": "on" if gpus.mig else "",
        "CARREL_TLS_CERTIFICATE": _certificate(settings),
    }
    return shared | {name: value for name, value in told.items() if value}


def _certificate(settings: InstallationSettings) -> str:
    """The front's certificate, whose end the scheduler watches; empty where there is no file."""
    tls = settings.tls
    return "" if tls is None or tls.certificate is None else str(tls.certificate)


def service_environment(settings: PartAddresses, keys: Keys, service: str) -> dict[str, str]:
    """The environment that the Hub gives to its own services."""
    token = {
        scopes.SCHEDULER: keys.scheduler,
        scopes.CONSOLE: keys.console,
        scopes.GATEWAY: keys.gateway,
    }[service]
    return environment_for_token(settings, token, service)


def environment_for_token(settings: PartAddresses, token: str, service: str) -> dict[str, str]:
    """The same for whoever knows the key of this service and no other."""
    url = {
        scopes.SCHEDULER: settings.scheduler_url,
        scopes.CONSOLE: settings.console_url,
        scopes.GATEWAY: settings.gateway_url,
    }[service]
    prefix = f"/services/{service}/"
    access = json.dumps(["access:services", f"access:services!service={service}"])
    return {
        "JUPYTERHUB_SERVICE_NAME": service,
        "JUPYTERHUB_API_TOKEN": token,
        "JUPYTERHUB_API_URL": f"{settings.hub_url}/hub/api",
        "JUPYTERHUB_BASE_URL": "/",
        "JUPYTERHUB_SERVICE_PREFIX": prefix,
        "JUPYTERHUB_SERVICE_URL": url,
        "JUPYTERHUB_CLIENT_ID": f"service-{service}",
        "JUPYTERHUB_HOST": "",
        "JUPYTERHUB_OAUTH_CALLBACK_URL": f"{prefix}oauth_callback",
        "JUPYTERHUB_OAUTH_ACCESS_SCOPES": access,
        "JUPYTERHUB_OAUTH_SCOPES": access,
    }
