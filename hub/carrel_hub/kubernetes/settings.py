"""The settings of an installation on a cluster, in one file that a ConfigMap brings."""

from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

import msgspec

from carrel_hub import scopes
from carrel_hub.front.traefik import REQUEST_SECONDS, RequestSeconds
from carrel_hub.sign_in import GROUPS_FILE, SignIn, as_path

ACCOUNTS: Final = "accounts"
PRIVATE: Final = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")


class ClusterHubSettings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """The settings of a Hub on a cluster, without secrets. URLs have no final slash.

    Attributes:
        public_url: what people type; TLS ends before the proxy.
        hub_url: the Hub as the other parts reach it.
        hub_url_for_workspaces: the same as workspaces do, where that is another; else empty.
        proxy_api_url: where the Hub asks the proxy whether it knows a new route.
        scheduler_url, console_url, gateway_url: our services themselves, not through the proxy.
        state_dir: what the Hub keeps, on a volume.
        database_url: the Hub's database (SQLAlchemy); empty: SQLite in ``state_dir``.
        image: of workspaces.
        image_pull_secrets: names of secrets of the projects' namespaces.
        separate_origins: all names below the host of ``public_url`` lead to the proxy, too: then
            every user's servers and every route of work have an origin of their own.
        authenticator: ``accounts`` is Carrel's own, with a file in ``state_dir``; else the name or
            the dotted path of a JupyterHub authenticator.
        sign_in: people sign in with a directory; then ``authenticator`` stays as it is.
        groups_file: from groups of the directory to projects and admins; empty: in ``state_dir``.
        demo: demo notebooks in every home.
        trusted_proxies: networks of what stands before the proxy, such as an Ingress, whose word on
            who asks is believed.
        request_seconds: a request, such as an upload, has to arrive within them.
        traits: more of JupyterHub's configuration, by class: ``{CarrelKubeSpawner: {...}}``.
    """

    public_url: str
    hub_url: str
    hub_url_for_workspaces: str = ""
    proxy_api_url: str
    scheduler_url: str
    console_url: str
    gateway_url: str
    state_dir: Path = Path("/srv/carrel")
    database_url: str = ""
    image: str
    image_pull_secrets: list[str] = []
    separate_origins: bool = False
    authenticator: str = ACCOUNTS
    sign_in: SignIn | None = None
    groups_file: Path | None = None
    demo: bool = False
    trusted_proxies: list[str] = msgspec.field(default_factory=lambda: list(PRIVATE))
    request_seconds: RequestSeconds = REQUEST_SECONDS
    traits: dict[str, dict[str, Any]] = {}

    def __post_init__(self) -> None:
        """Raises ``ValueError``: names the field, the value and what would be right."""
        for name in ("public_url", "hub_url", *_SERVICES):
            value = getattr(self, name)
            where = urlsplit(value)
            if where.scheme not in ("http", "https") or not where.hostname or where.path:
                raise ValueError(f"{name} is {value!r}; it should be http(s)://host:port")
            if name in _SERVICES and where.port is None:
                raise ValueError(f"{name} is {value!r}; it should say the port")
        if self.sign_in is not None and self.authenticator != ACCOUNTS:
            raise ValueError(
                f"authenticator is {self.authenticator!r}; it should not be set beside sign_in"
            )

    @property
    def api_url(self) -> str:
        """The API's address for clients inside the cluster."""
        return f"{self.scheduler_url}/services/{scopes.SCHEDULER}"

    @property
    def hub_db_url(self) -> str:
        """The Hub's database."""
        return self.database_url or f"sqlite:///{self.state_dir / 'jupyterhub.sqlite'}"

    @property
    def accounts_file(self) -> Path:
        """Names and password hashes."""
        return self.state_dir / "hub" / "accounts.json"

    @property
    def directory_groups(self) -> Path:
        """The file that maps groups of the directory to projects and admins."""
        return self.groups_file or self.state_dir / "hub" / GROUPS_FILE

    @property
    def routes_file(self) -> Path:
        """The file of routes, which the proxy fetches from the Hub."""
        return self.state_dir / "hub" / "routes.yaml"

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read YAML (or JSON). Raises ``OSError``, ``msgspec.ValidationError``."""
        return msgspec.yaml.decode(path.read_bytes(), type=cls, dec_hook=as_path)


_SERVICES: Final = ("proxy_api_url", "scheduler_url", "console_url", "gateway_url")
