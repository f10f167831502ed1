"""What the console is told from outside: by the Hub that starts it, and where the scheduler is."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode, urlsplit

DEFAULT_API = "http://127.0.0.1:8000/services/carrel"


class SettingsError(Exception):
    """A setting is missing or cannot be used; says which and what would be right."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Addresses and the key to this service's cookies.

    Attributes:
        prefix: path of the console behind the proxy, with slashes at both ends.
        hub_prefix: path of the Hub, likewise.
        host, port: where to listen.
        api_url: the scheduler service, without a final slash.
        token: the service's own Hub token. Signs people in; never used to ask the scheduler.
    """

    prefix: str
    hub_prefix: str
    host: str
    port: int
    api_url: str
    token: str = field(repr=False)

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "ConsoleSettings":
        """Read the environment of a JupyterHub service. Raises ``SettingsError``."""
        prefix = env.get("JUPYTERHUB_SERVICE_PREFIX", "/services/console/")
        address = urlsplit(env.get("JUPYTERHUB_SERVICE_URL", "http://127.0.0.1:8060"))
        if address.scheme != "http" or not address.hostname or not address.port:
            raise SettingsError(
                "JUPYTERHUB_SERVICE_URL must be http with a host and a port, such as "
                f"http://127.0.0.1:8060; it is {address.geturl()!r}"
            )
        token = env.get("JUPYTERHUB_API_TOKEN", "")
        if not token or not env.get("JUPYTERHUB_CLIENT_ID"):
            raise SettingsError(
                "JUPYTERHUB_API_TOKEN and JUPYTERHUB_CLIENT_ID must be set: "
                "the console is started by JupyterHub as one of its services"
            )
        base = env.get("JUPYTERHUB_BASE_URL", "/")
        return cls(
            prefix=_slashed(prefix),
            hub_prefix=_slashed(f"{base.rstrip('/')}/hub"),
            host=address.hostname,
            port=address.port,
            api_url=env.get("CARREL_API_URL", DEFAULT_API).rstrip("/"),
            token=token,
        )


@dataclass(frozen=True, slots=True)
class Urls:
    """Addresses of pages, for links."""

    prefix: str
    hub_prefix: str

    def page(self, name: str = "") -> str:
        """A page of the console; without a name, Home."""
        return f"{self.prefix}{name}"

    def job(self, project: str, name: str, part: str = "") -> str:
        """A workload's page, or a part of it (``delete``, ``suspend``, ...)."""
        address = f"{self.prefix}jobs/{quote(project, safe='')}/{quote(name, safe='')}"
        return f"{address}/{part}" if part else address

    def project(self, name: str, part: str = "") -> str:
        """A project's page, or a part of it."""
        address = f"{self.prefix}projects/{quote(name, safe='')}"
        return f"{address}/{part}" if part else address

    def compare(self, runs: Iterable[str], part: str = "compare") -> str:
        """The comparison of runs (``PROJECT/NAME``), its ``curves`` or its ``compare.csv``."""
        query = urlencode([("run", run) for run in runs], safe="/")
        return f"{self.prefix}{part}?{query}" if query else f"{self.prefix}{part}"

    @property
    def services(self) -> str:
        """The path below which the Hub's services are."""
        return f"{self.hub_prefix.removesuffix('hub/')}services/"

    def hub(self, name: str) -> str:
        """The address of a page of the Hub, such as ``spawn`` or ``logout``."""
        return f"{self.hub_prefix}{name}"

    def workspace(self, user: str, server: str) -> str:
        """A running workspace itself."""
        base = self.hub_prefix.removesuffix("hub/")
        name = f"{quote(server, safe='')}/" if server else ""
        return f"{base}user/{quote(user, safe='@~')}/{name}"


def _slashed(path: str) -> str:
    inner = path.strip("/")
    return f"/{inner}/" if inner else "/"
