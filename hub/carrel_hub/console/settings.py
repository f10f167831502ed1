"""The settings of the console: from the Hub that starts it, and the scheduler's address."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from carrel_hub import service_environment


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
        host, port = service_environment.listening(env, "http://127.0.0.1:8060")
        service_environment.need(env, "JUPYTERHUB_API_TOKEN", "JUPYTERHUB_CLIENT_ID")
        prefix = env.get("JUPYTERHUB_SERVICE_PREFIX", "/services/console/")
        return cls(
            prefix=service_environment.slashed(prefix),
            hub_prefix=service_environment.hub_prefix(env),
            host=host,
            port=port,
            api_url=service_environment.api_url(env),
            token=env["JUPYTERHUB_API_TOKEN"],
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
