"""Configures a JupyterHub as a Carrel on one machine: ``install(c, settings, keys)``.

Usable from anybody's ``jupyterhub_config.py``. What is set here can be set differently afterwards;
what Carrel needs to work is in ``product``.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from carrel_hub import product
from carrel_hub.accounts.authenticator import CarrelAuthenticator
from carrel_hub.accounts.signing_out import ending_sessions
from carrel_hub.accounts.store import AccountStore
from carrel_hub.directory import configuration as directory
from carrel_hub.keys import Keys
from carrel_hub.settings import OWN, InstallationSettings
from carrel_spawner.spawner import CarrelSpawner


def install(c: Any, settings: InstallationSettings, keys: Keys) -> None:
    """Fill the traitlets configuration ``c`` of a Hub."""
    _addresses(c, settings, keys)
    _identity(c, settings, keys)
    product.rights(c, keys)
    product.registered(c, settings, keys)
    workspaces = product.workspaces(c, CarrelSpawner, settings, keys)
    # A poll is one cheap question on loopback, and an idle stop should show at once.
    workspaces.poll_interval = 5
    workspaces.profile_list = kinds(settings.environments)
    product.pages(c, local_accounts=settings.sign_in is None)


def kinds(environments: Mapping[str, str]) -> list[dict[str, str]]:
    """The kinds of workspaces to choose from: Carrel's own Python, and the admin's environments."""
    if not environments:
        return []
    own = {"slug": OWN, "display_name": "Carrel's own Python"}
    offered = [
        {"slug": name, "display_name": name, "description": prefix, "environment": prefix}
        for name, prefix in environments.items()
    ]
    return [own, *offered]


def install_from(c: Any, settings_file: str, keys_file: str) -> None:
    """``install`` with what `carrel up` wrote down; what the Hub writes is for itself alone."""
    # After the imports: the compiled modules that they leave behind are for everybody.
    os.umask(0o077)
    install(c, InstallationSettings.load(Path(settings_file)), Keys.load_or_create(Path(keys_file)))


def _addresses(c: Any, settings: InstallationSettings, keys: Keys) -> None:
    """Set the addresses of the Hub, and the paths of its own files."""
    c.JupyterHub.bind_url = f"{settings.public_url}/"
    c.JupyterHub.hub_bind_url = settings.hub_url
    c.JupyterHub.db_url = f"sqlite:///{settings.hub_dir / 'jupyterhub.sqlite'}"
    product.persistence(c, settings, keys)
    product.origins(c, settings)
    c.StoppedRoutes.traefik_api_url = f"http://127.0.0.1:{settings.ports.proxy_api}"
    c.StoppedRoutes.dynamic_config_file = str(settings.routes_dir / "routes.yaml")
    if settings.tls is not None:
        c.JupyterHub.public_url = f"{settings.public_url}/"
        c.StoppedRoutes.tls_certificate = str(settings.tls.certificate or "")
        c.StoppedRoutes.tls_key = str(settings.tls.key or "")


def _identity(c: Any, settings: InstallationSettings, keys: Keys) -> None:
    """A directory, or accounts of this machine."""
    if settings.sign_in is not None:
        directory.install(
            c, settings.sign_in, settings.groups_file, settings.public_url, keys.crypt
        )
        return
    accounts = AccountStore(settings.accounts_file).all()
    c.JupyterHub.authenticator_class = ending_sessions(CarrelAuthenticator)
    c.CarrelAuthenticator.accounts_file = str(settings.accounts_file)
    c.CarrelAuthenticator.allowed_users = set(accounts)
    c.CarrelAuthenticator.admin_users = {name for name, one in accounts.items() if one.admin}
