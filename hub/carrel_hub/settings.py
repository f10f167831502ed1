"""The settings of one installation: folders, addresses, and the scheduler's options."""

from pathlib import Path
from typing import Final, Self

import msgspec

from carrel_hub.front.traefik import REQUEST_SECONDS, RequestSeconds, Tls
from carrel_hub.sign_in import GROUPS_FILE, SignIn

OWN: Final = "carrel"
"""The environment of workspaces that Carrel itself runs in."""
HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443


class Ports(msgspec.Struct, kw_only=True, frozen=True):
    """Loopback ports of the parts; kept, because workspaces that run on know them."""

    hub: int
    proxy_api: int
    scheduler: int
    console: int
    gateway: int


class Gpus(msgspec.Struct, kw_only=True, frozen=True):
    """Simulated GPUs; ``None`` leaves it to the scheduler (real ones where there are any).

    ``mig``: they are divided into MIG instances as work asks, real ones too.
    """

    count: int | None = None
    memory_mib: int | None = None
    name: str | None = None
    mig: bool = False


class InstallationSettings(msgspec.Struct, kw_only=True, frozen=True):
    """The settings of an installation, without secrets.

    Attributes:
        state_dir: the one folder that is written to.
        host, port: where people reach it; everything else listens on 127.0.0.1.
        domain: the name by which people reach it, when all names below it lead here, too: then
            every user's servers and every route of work have an origin of their own.
        managed: the Hub starts the services itself (`carrel up` does it otherwise).
        database_url: the scheduler's ledger; empty means SQLite in the state folder.
        demo: demo notebooks in every home.
        environments: Python environments that workspaces are offered, name to prefix.
        tls: how the public port speaks TLS; without, it speaks plain HTTP.
        trusted_proxies: networks of proxies before ours, whose word on who asks is believed.
        request_seconds: a request, such as an upload, has to arrive within them.
        sign_in: people sign in with a directory; without, with accounts of this machine.
    """

    state_dir: Path
    host: str = "127.0.0.1"
    port: int = 8000
    ports: Ports
    gpus: Gpus = Gpus()
    database_url: str = ""
    demo: bool = False
    managed: bool = True
    domain: str = ""
    environments: dict[str, str] = {}
    tls: Tls | None = None
    trusted_proxies: list[str] = []
    request_seconds: RequestSeconds = REQUEST_SECONDS
    sign_in: SignIn | None = None

    @property
    def hub_dir(self) -> Path:
        """The Hub's own files."""
        return self.state_dir / "hub"

    @property
    def routes_dir(self) -> Path:
        """The folder in which the Hub writes for the proxy."""
        return self.hub_dir / "routes"

    @property
    def log_dir(self) -> Path:
        """The folder of logs: a file for each part."""
        return self.state_dir / "logs"

    @property
    def access_log(self) -> Path:
        """Whether each request is logged."""
        return self.log_dir / "access.log"

    @property
    def accounts_file(self) -> Path:
        """Names and password hashes."""
        return self.hub_dir / "accounts.json"

    @property
    def groups_file(self) -> Path:
        """The file that maps groups of the directory to projects and admins."""
        return self.hub_dir / GROUPS_FILE

    @property
    def public_url(self) -> str:
        """The address that users open, without a trailing slash."""
        acme = self.tls.acme_domains if self.tls is not None else []
        name = self.domain or (acme[0] if acme else "")
        if not name:
            return self.front_url
        scheme, usual = ("http", HTTP_PORT) if self.tls is None else ("https", HTTPS_PORT)
        return f"{scheme}://{name}" + ("" if self.port == usual else f":{self.port}")

    @property
    def front_url(self) -> str:
        """The public port as reached from this machine."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0", "::") else self.host  # noqa: S104 - compared, not bound
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if self.tls is None else 'https'}://{shown}:{self.port}"

    @property
    def separate_origins(self) -> bool:
        """Whether servers and routes have origins of their own, below the Hub's host."""
        return bool(self.domain)

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return self.host in ("localhost", "::1") or self.host.startswith("127.")

    @property
    def hub_url(self) -> str:
        """The Hub itself."""
        return f"http://127.0.0.1:{self.ports.hub}"

    @property
    def scheduler_url(self) -> str:
        """The scheduler's service itself, not through the proxy."""
        return f"http://127.0.0.1:{self.ports.scheduler}"

    @property
    def console_url(self) -> str:
        """The console's service itself."""
        return f"http://127.0.0.1:{self.ports.console}"

    @property
    def gateway_url(self) -> str:
        """The gateway's service itself."""
        return f"http://127.0.0.1:{self.ports.gateway}"

    @property
    def api_url(self) -> str:
        """The scheduler's address for clients on this machine, without ``/api/v1``."""
        return f"{self.scheduler_url}/services/carrel"

    def save(self, path: Path) -> None:
        """Write as JSON."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self, enc_hook=str), indent=2))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read JSON. Raises ``OSError``, ``msgspec.MsgspecError``."""
        return msgspec.json.decode(path.read_bytes(), type=cls, dec_hook=_decode)


def _decode(kind: type, value: object) -> object:
    return kind(value)
