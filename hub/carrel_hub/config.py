"""One call that makes a JupyterHub a Carrel: ``install(c, settings, keys)``.

Usable from anybody's ``jupyterhub_config.py``. What is set here can be set differently afterwards;
what Carrel needs to work is in ``_identity``, ``_services`` and ``_workspaces``.
"""

import sys
from pathlib import Path
from typing import Any, Final

from carrel_hub import scopes, services
from carrel_hub.accounts.authenticator import CarrelAuthenticator
from carrel_hub.accounts.store import Accounts
from carrel_hub.keys import Keys
from carrel_hub.pages import Pages
from carrel_hub.queue import handlers
from carrel_hub.resting import RestingRoutes
from carrel_hub.settings import Settings
from carrel_spawner.spawner import CarrelSpawner

HERE: Final = Path(__file__).parent
START_SECONDS: Final = 600
NAMED_WORKSPACES: Final = 4


def install(c: Any, settings: Settings, keys: Keys) -> None:
    """Fill the traitlets configuration ``c`` of a Hub."""
    _addresses(c, settings, keys)
    _identity(c, settings)
    _services(c, settings, keys)
    _workspaces(c, settings, keys)
    _pages(c)


def install_from(c: Any, settings_file: str, keys_file: str) -> None:
    """``install`` with what `carrel up` wrote down."""
    install(c, Settings.load(Path(settings_file)), Keys.load_or_create(Path(keys_file)))


def _addresses(c: Any, settings: Settings, keys: Keys) -> None:
    """Where the Hub listens and keeps its own; it may restart without anybody noticing."""
    c.JupyterHub.bind_url = f"{settings.public_url}/"
    c.JupyterHub.hub_bind_url = settings.hub_url
    c.JupyterHub.db_url = f"sqlite:///{settings.hub_dir / 'jupyterhub.sqlite'}"
    c.JupyterHub.upgrade_db = True
    c.JupyterHub.cookie_secret = bytes.fromhex(keys.cookie)
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.cleanup_proxy = False
    c.JupyterHub.proxy_class = RestingRoutes
    c.ConfigurableHTTPProxy.should_start = False
    c.ConfigurableHTTPProxy.command = [sys.executable, "-m", "carrel_hub.proxy"]
    c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{settings.ports.proxy_api}"
    c.ConfigurableHTTPProxy.auth_token = keys.proxy


def _identity(c: Any, settings: Settings) -> None:
    """Accounts, rights, and groups that the API changes while the Hub runs.

    ``load_groups`` stays empty on purpose: what it names would come back at every start.
    """
    accounts = Accounts(settings.accounts_file).all()
    c.JupyterHub.authenticator_class = CarrelAuthenticator
    c.CarrelAuthenticator.accounts_file = str(settings.accounts_file)
    c.CarrelAuthenticator.allowed_users = set(accounts)
    c.CarrelAuthenticator.admin_users = {name for name, one in accounts.items() if one.admin}
    c.JupyterHub.custom_scopes = scopes.CUSTOM_SCOPES
    c.JupyterHub.extra_user_scopes = scopes.user_scopes()
    c.JupyterHub.load_roles = scopes.load_roles()


def _services(c: Any, settings: Settings, keys: Keys) -> None:
    # The services' tokens are random keys, not passwords: stretching them costs each call 2.5 ms.
    c.JupyterHub.trust_user_provided_tokens = True
    c.JupyterHub.services = services.registrations(settings, keys)


def _workspaces(c: Any, settings: Settings, keys: Keys) -> None:
    c.JupyterHub.spawner_class = CarrelSpawner
    c.JupyterHub.allow_named_servers = True
    c.JupyterHub.named_server_limit_per_user = NAMED_WORKSPACES
    c.JupyterHub.allow_existing_invalid_named_servers = "allow-start"
    c.CarrelSpawner.carrel_url = settings.api_url
    c.CarrelSpawner.carrel_token = keys.spawner
    c.CarrelSpawner.carrel_gateway_url = f"{settings.gateway_url}/services/{scopes.GATEWAY}"
    c.CarrelSpawner.carrel_console_url = f"/services/{scopes.CONSOLE}/"
    c.CarrelSpawner.environment = {"CARREL_PUBLIC_URL": settings.public_url}
    c.CarrelSpawner.demo = settings.demo
    c.CarrelSpawner.server_token_scopes = scopes.SERVER_TOKEN
    c.CarrelSpawner.start_timeout = START_SECONDS
    c.CarrelSpawner.http_timeout = 60
    # The scheduler cannot tell who asks before the Hub listens, so workspaces are looked up after.
    c.JupyterHub.init_spawners_timeout = 1
    # A poll is one cheap question on loopback, and an idle stop should show at once.
    c.CarrelSpawner.poll_interval = 5


def _pages(c: Any) -> None:
    c.JupyterHub.template_paths = [str(HERE / "templates")]
    c.JupyterHub.logo_file = str(HERE / "templates" / "logo.svg")
    c.JupyterHub.template_vars = {"carrel": Pages}
    c.JupyterHub.default_url = "/hub/home"
    c.JupyterHub.extra_handlers = handlers()
