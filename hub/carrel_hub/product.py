"""The parts of Carrel in every JupyterHub that has it: rights, services, workspaces, pages."""

from pathlib import Path
from typing import Any, Final

import bcrypt

from carrel_hub import navigation, scopes, services
from carrel_hub.accounts.signing_out import HUB_VERSION
from carrel_hub.code_sign_in import handlers as code_sign_in
from carrel_hub.front import traefik
from carrel_hub.front.rules import host_of, rules_of_traefik
from carrel_hub.keys import Keys
from carrel_hub.pages import Pages
from carrel_hub.people import handlers as people
from carrel_hub.queue import handlers
from carrel_hub.services import PartAddresses
from carrel_hub.stopped_routes import StoppedRoutes

HERE: Final = Path(__file__).parent
START_SECONDS: Final = 600
NAMED_WORKSPACES: Final = 4
API_USER: Final = "hub"
_ROUNDS: Final = 4
"""The fewest rounds of bcrypt: a random key needs no stretching, which each call would pay for."""


def persistence(c: Any, places: PartAddresses, keys: Keys) -> None:
    """The Hub may restart without anybody noticing: proxy and workspaces go on meanwhile."""
    c.JupyterHub.upgrade_db = True
    c.JupyterHub.cookie_secret = bytes.fromhex(keys.cookie)
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.cleanup_proxy = False
    c.JupyterHub.proxy_class = StoppedRoutes
    c.StoppedRoutes.should_start = False
    c.StoppedRoutes.traefik_entrypoint = traefik.PUBLIC
    c.StoppedRoutes.traefik_api_entrypoint = traefik.INTERNAL
    c.StoppedRoutes.traefik_api_username = API_USER
    c.StoppedRoutes.traefik_api_password = keys.proxy
    c.StoppedRoutes.traefik_api_hashed_password = hashed(keys.proxy)
    c.StoppedRoutes.unavailable_url = places.gateway_url


def origins(c: Any, places: PartAddresses) -> None:
    """A host for each user's servers and each route of work, where DNS leads them all here."""
    if not places.separate_origins:
        return
    c.JupyterHub.subdomain_host = places.public_url
    c.JupyterHub.subdomain_hook = host_of
    # No host below the Hub's can set a cookie that the Hub takes for its own.
    c.JupyterHub.cookie_host_prefix_enabled = places.public_url.startswith("https:")
    own = {
        scopes.SCHEDULER: places.scheduler_url,
        scopes.CONSOLE: places.console_url,
        scopes.GATEWAY: places.gateway_url,
    }
    c.StoppedRoutes.beside = rules_of_traefik(places.public_url, own)


def hashed(key: str) -> str:
    """The proxy's key in the form that Traefik compares."""
    return bcrypt.hashpw(key.encode(), bcrypt.gensalt(_ROUNDS)).decode("ascii")


def rights(c: Any, keys: Keys) -> None:
    """Scopes and roles; groups are changed by the API while the Hub runs.

    ``load_groups`` stays empty on purpose: what it names would come back at every start.
    """
    c.JupyterHub.custom_scopes = scopes.CUSTOM_SCOPES
    c.JupyterHub.extra_user_scopes = scopes.user_scopes()
    c.JupyterHub.load_roles = scopes.load_roles(scraped=bool(keys.metrics))


def registered(c: Any, places: PartAddresses, keys: Keys) -> None:
    """Register Carrel's services with the Hub."""
    # The services' tokens are random keys, not passwords: stretching them costs each call 2.5 ms.
    c.JupyterHub.trust_user_provided_tokens = True
    c.JupyterHub.services = services.registrations(places, keys)
    c.Authenticator.audit_url = places.api_url
    c.Authenticator.audit_token = keys.spawner


def workspaces(c: Any, spawner_class: type, places: PartAddresses, keys: Keys) -> Any:
    """Configure the spawner class for Carrel; returns its section for more."""
    c.JupyterHub.spawner_class = spawner_class
    c.JupyterHub.allow_named_servers = True
    c.JupyterHub.named_server_limit_per_user = NAMED_WORKSPACES
    c.JupyterHub.allow_existing_invalid_named_servers = "allow-start"
    # The scheduler cannot tell who asks before the Hub listens, so workspaces are looked up after.
    c.JupyterHub.init_spawners_timeout = 1
    section = c[spawner_class.__name__]
    section.carrel_url = places.api_url
    section.carrel_token = keys.spawner
    section.carrel_gateway_url = f"{places.gateway_url}/services/{scopes.GATEWAY}"
    section.carrel_console_url = f"/services/{scopes.CONSOLE}/"
    section.environment = {"CARREL_PUBLIC_URL": places.public_url}
    if places.separate_origins:
        section.environment["CARREL_SEPARATE_ORIGINS"] = "1"
    section.demo = places.demo
    section.server_token_scopes = scopes.SERVER_TOKEN
    section.start_timeout = START_SECONDS
    section.http_timeout = 60
    return section


def pages(c: Any, *, local_accounts: bool) -> None:
    """Carrel's own pages, and the queue's handlers.

    ``local_accounts``: people sign in with accounts of the file, which have pages of their own.
    """
    c.JupyterHub.template_paths = [str(HERE / "templates"), str(navigation.TEMPLATES)]
    c.JupyterHub.logo_file = str(HERE / "templates" / "logo.svg")
    c.JupyterHub.template_vars = {"carrel": Pages, "local_accounts": local_accounts}
    c.JupyterHub.default_url = "/hub/home"
    c.JupyterHub.extra_handlers = [*handlers(), *people.HANDLERS, *code_sign_in.handlers()]
    # Strangers learn of no exact version; servers compare the first number with their own.
    c.JupyterHub.tornado_settings = {"headers": {"X-JupyterHub-Version": HUB_VERSION, "Server": ""}}
