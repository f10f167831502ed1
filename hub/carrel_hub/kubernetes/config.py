"""Configures a JupyterHub as a Carrel on a cluster: ``install(c, settings, keys)``.

The Hub's configuration file on a cluster is::

    from carrel_hub.kubernetes.config import load
    load(get_config())
"""

import os
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from carrel_hub import product
from carrel_hub.accounts.authenticator import CarrelAuthenticator
from carrel_hub.accounts.signing_out import authenticator_named, ending_sessions
from carrel_hub.accounts.store import AccountStore
from carrel_hub.directory import configuration as directory
from carrel_hub.front.provided import PROVIDED_PATH, ProvidedRoutes
from carrel_hub.keys import Keys
from carrel_hub.kubernetes.settings import ACCOUNTS, ClusterHubSettings
from carrel_spawner.kubernetes.spawner import CarrelKubeSpawner

SETTINGS: Final = "CARREL_HUB_SETTINGS"
KEYS: Final = "CARREL_KEYS_DIR"
USUAL: Final = {SETTINGS: "/etc/carrel/hub.yaml", KEYS: "/etc/carrel/keys"}
HUB_PORT: Final = 8081
ROUTE_SECONDS: Final = 150
PRIORITY: Final = "carrel-build"
"""Priority class of workspaces, so that a node in need gives up other pods first."""


def load(c: Any) -> None:
    """Configure the Hub as ``install`` does, from the mounted files."""
    install(c, *told())


def told() -> tuple[ClusterHubSettings, Keys]:
    """The settings file and the keys of the Hub.

    Raises ``OSError``, ``msgspec.ValidationError``.
    """
    return ClusterHubSettings.load(_place(SETTINGS)), Keys.read(_place(KEYS))


def part_settings(name: str) -> tuple[ClusterHubSettings, str]:
    """The file and the one key that a part beside the Hub was given.

    Raises ``OSError``, ``msgspec.ValidationError``.
    """
    return ClusterHubSettings.load(_place(SETTINGS)), Keys.read_one(_place(KEYS), name)


def _place(variable: str) -> Path:
    return Path(os.environ.get(variable) or USUAL[variable])


def install(c: Any, settings: ClusterHubSettings, keys: Keys) -> None:
    """Fill the traitlets configuration ``c`` of a Hub; ``settings.traits`` have the last word."""
    _addresses(c, settings, keys)
    _identity(c, settings, keys)
    product.rights(c, keys)
    product.registered(c, settings, keys)
    _workspaces(c, settings, keys)
    local = settings.sign_in is None and settings.authenticator == ACCOUNTS
    product.pages(c, local_accounts=local)
    told_to_proxy = {"file": settings.routes_file, "token": keys.proxy}
    c.JupyterHub.extra_handlers.append((PROVIDED_PATH, ProvidedRoutes, told_to_proxy))
    for name, values in settings.traits.items():
        for trait, value in values.items():
            setattr(c[name], trait, value)


def _addresses(c: Any, settings: ClusterHubSettings, keys: Keys) -> None:
    """The Hub listens in its pod, and is reached by its service's name."""
    c.JupyterHub.bind_url = "http://:8000/"
    c.JupyterHub.public_url = f"{settings.public_url}/"
    c.JupyterHub.hub_bind_url = f"http://:{urlsplit(settings.hub_url).port or HUB_PORT}"
    c.JupyterHub.hub_connect_url = settings.hub_url
    c.JupyterHub.db_url = settings.hub_db_url
    product.persistence(c, settings, keys)
    product.origins(c, settings)
    c.StoppedRoutes.provider_name = "http"
    c.StoppedRoutes.traefik_api_url = settings.proxy_api_url
    # Traefik asks a Hub that did not answer for some time once a minute only.
    c.StoppedRoutes.check_route_timeout = ROUTE_SECONDS
    settings.routes_file.parent.mkdir(parents=True, exist_ok=True)
    c.StoppedRoutes.dynamic_config_file = str(settings.routes_file)


def _identity(c: Any, settings: ClusterHubSettings, keys: Keys) -> None:
    c.CryptKeeper.keys = [bytes.fromhex(keys.crypt)]
    if settings.sign_in is not None:
        settings.directory_groups.parent.mkdir(parents=True, exist_ok=True)
        directory.install(
            c, settings.sign_in, settings.directory_groups, settings.public_url, keys.crypt
        )
        return
    if settings.authenticator != ACCOUNTS:
        theirs = authenticator_named(settings.authenticator)
        c.JupyterHub.authenticator_class = ending_sessions(theirs)
        return
    settings.accounts_file.parent.mkdir(parents=True, exist_ok=True)
    accounts = AccountStore(settings.accounts_file).all()
    c.JupyterHub.authenticator_class = ending_sessions(CarrelAuthenticator)
    c.CarrelAuthenticator.accounts_file = str(settings.accounts_file)
    c.CarrelAuthenticator.allowed_users = set(accounts)
    c.CarrelAuthenticator.admin_users = {name for name, one in accounts.items() if one.admin}


def _workspaces(c: Any, settings: ClusterHubSettings, keys: Keys) -> None:
    section = product.workspaces(c, CarrelKubeSpawner, settings, keys)
    section.image = settings.image
    section.image_pull_secrets = settings.image_pull_secrets
    section.priority_class_name = PRIORITY
    section.poll_interval = 10
    if settings.hub_url_for_workspaces:
        section.hub_connect_url = settings.hub_url_for_workspaces
