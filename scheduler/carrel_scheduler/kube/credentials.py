"""Credentials for the API server, and the trust in its certificate.

kubernetes_asyncio reads configurations (tokens, token files, client certificates, exec plugins,
OIDC). It is asked again each minute, as tokens rotate, and from the beginning when the server
refuses what it gave. Its client is not used. No text of these objects contains a token.
"""

import asyncio
import datetime as dt
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from typing_extensions import override

_LIBRARY: Final = "kubernetes_asyncio.config.kube_config"


def broken() -> tuple[type[Exception], ...]:
    """The errors that the library raises for an unusable configuration or plugin."""
    from kubernetes_asyncio.config import ConfigException

    of_files_and_plugins = (OSError, RuntimeError)
    of_texts = (KeyError, TypeError, ValueError, AssertionError)
    return (ConfigException, *of_files_and_plugins, *of_texts)


class _Said(logging.Filter):
    """Keeps what the library would log: only there does it say why a plugin failed."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.ERROR:
            return True
        self.words.append(record.getMessage())
        return False


@contextmanager
def said() -> Iterator[list[str]]:
    """Collect the errors that the library logs inside the block, instead of logging them."""
    listening, logger = _Said(), logging.getLogger(_LIBRARY)
    logger.addFilter(listening)
    try:
        yield listening.words
    finally:
        logger.removeFilter(listening)


ASKED_AGAIN_SECONDS: Final = 60.0
RENEWALS_APART_SECONDS: Final = 5.0
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_NEVER: Final = dt.datetime.max.replace(tzinfo=dt.UTC)
_BEARER: Final = "BearerToken"  # the library's name of the whole Authorization header

Load = Callable[[], Awaitable[Any]]
"""Gives the library's ``Configuration`` as it is now."""


class CredentialsUnusable(Exception):  # noqa: N818 - an outcome that a person mends
    """No usable credentials; the message says which, why, and what would be right.

    Attributes:
        refused: the server does not accept what there is.
    """

    code = "kubernetes_credentials_unusable"

    def __init__(self, why: str, *, refused: bool = False) -> None:
        super().__init__(why)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """The address and credentials for a request.

    Attributes:
        url: of the API server, without a slash at its end.
        authorization: the header's whole value; empty with client certificates.
        tls: trusts the cluster's authority and holds our certificate; ``None`` without TLS, which
            is for loopback only.
        server_name: to expect in the server's certificate, where it is not the URL's.
        proxy: URL of a proxy to go through, or empty.
    """

    url: str
    authorization: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    server_name: str = ""
    proxy: str = field(default="", repr=False)


class Credentials(Protocol):
    """Provides access, valid for a limited time."""

    async def access(self) -> ServerAccess:
        """The access to use now. Raises ``CredentialsUnusable``."""
        ...

    async def renewed(self, refused: ServerAccess) -> ServerAccess:
        """Read the credentials again after a refusal; the same if there are no newer ones."""
        ...


class ConfiguredCredentials:
    """Credentials of the library's configurations.

    Args:
        begin: loads the configuration from its beginning and gives how to load it again, which
            may use what is kept, as an exec plugin's token until it expires.
        now: monotonic seconds.
    """

    def __init__(
        self, begin: Callable[[], Awaitable[Load]], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._begin = begin
        self._now = now
        self._load: Load | None = None
        self._access: ServerAccess | None = None
        self._asked_at = 0.0
        self._begun_at = 0.0
        self._lock = asyncio.Lock()
        self._tls: tuple[Any, ssl.SSLContext] | None = None

    async def access(self) -> ServerAccess:
        """The access to use now; kept for a minute. Raises ``CredentialsUnusable``."""
        kept = self._kept()
        if kept is not None:
            return kept
        async with self._lock:
            return self._kept() or await self._ask(anew=False)

    async def renewed(self, refused: ServerAccess) -> ServerAccess:
        """See ``Credentials``; the source is read from its beginning, every few seconds at most."""
        async with self._lock:
            newer = self._access is not None and self._access != refused
            if newer or self._now() - self._begun_at < RENEWALS_APART_SECONDS:
                return self._access or refused
            return await self._ask(anew=True)

    def _kept(self) -> ServerAccess | None:
        fresh = self._now() - self._asked_at < ASKED_AGAIN_SECONDS
        return self._access if fresh else None

    async def _ask(self, *, anew: bool) -> ServerAccess:
        if anew or self._load is None:
            self._begun_at = self._now()
            self._load = await self._begin()
        found = await self._load()
        url = _checked_url(found)
        try:
            tls = self._context(found)
        except OSError as error:  # which errors of TLS are, too
            why = f"kubeconfig: its certificates can not be read: {error}"
            raise CredentialsUnusable(why) from error
        self._asked_at = self._now()
        self._access = ServerAccess(
            url,
            (found.api_key.get(_BEARER) or "").strip(),
            tls,
            found.tls_server_name or "",
            found.proxy or "",
        )
        return self._access

    def _context(self, found: Any) -> ssl.SSLContext | None:
        """The same context while its files stay the same, so that connections are kept."""
        if not found.host.startswith("https"):
            return None
        files = (found.ssl_ca_cert, found.cert_file, found.key_file)
        key = tuple((file, Path(file).stat().st_mtime_ns) for file in files if file)
        if self._tls is None or self._tls[0] != key:
            context = ssl.create_default_context(cafile=found.ssl_ca_cert)
            if found.cert_file:
                context.load_cert_chain(found.cert_file, found.key_file)
            self._tls = (key, context)
        return self._tls[1]


def from_kubeconfig(
    path: str | Path, context: str = "", now: Callable[[], float] = time.monotonic
) -> ConfiguredCredentials:
    """Credentials of a configuration file, or of several that ``:`` joins as in ``KUBECONFIG``.

    Args:
        path: of the file or files.
        context: by default the current one of the files.
        now: monotonic seconds.
    """

    async def begin() -> Load:
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import load_kube_config

        if not any(Path(one).expanduser().is_file() for one in str(path).split(os.pathsep)):
            raise CredentialsUnusable(f"kubeconfig: {path} is not a file that we can read")
        first = Configuration()
        try:
            with said() as words:
                loader = await load_kube_config(str(path), context or None, first)
        except broken() as error:
            raise CredentialsUnusable(f"kubeconfig: {path} is not usable: {error}") from error
        _refuse_nobody(path, first, words)
        if not hasattr(loader, "exec_plugin_expiry"):
            # A plugin that names no end is asked again only when its token is refused.
            loader.exec_plugin_expiry = _NEVER
        given = [first]

        async def load() -> Any:
            if given:
                return given.pop()
            again = Configuration()
            try:
                with said() as words:
                    await loader.load_and_set(again)
            except broken() as error:
                raise CredentialsUnusable(f"kubeconfig: {path} is not usable: {error}") from error
            _refuse_nobody(path, again, words)
            return again

        return load

    return ConfiguredCredentials(begin, now)


def _refuse_nobody(path: str | Path, found: Any, words: Sequence[str]) -> None:
    """Refuse to continue anonymously where a plugin failed."""
    if words and not found.api_key.get(_BEARER) and not found.cert_file:
        why = "; ".join(words)
        raise CredentialsUnusable(f"kubeconfig: {path} gives no credentials: {why}")


def in_cluster(
    account: Path = ACCOUNT,
    environ: Mapping[str, str] = os.environ,
    now: Callable[[], float] = time.monotonic,
) -> ConfiguredCredentials:
    """Credentials of the service account of Carrel's own pod.

    Args:
        account: the folder with its token, which changes, and the authority's certificate.
        environ: says where the API server is.
        now: monotonic seconds.
    """

    async def load() -> Any:
        from kubernetes_asyncio.client import Configuration
        from kubernetes_asyncio.config import ConfigException
        from kubernetes_asyncio.config.incluster_config import InClusterConfigLoader

        found = Configuration()
        loader = InClusterConfigLoader(
            str(account / "token"),
            str(account / "ca.crt"),
            try_refresh_token=False,
            environ=dict(environ),
        )
        try:
            loader.load_and_set(found)
        except ConfigException as error:
            raise CredentialsUnusable(f"service account: {account}: {error}") from error
        return found

    async def begin() -> Load:
        return load

    return ConfiguredCredentials(begin, now)


def find(environ: Mapping[str, str] = os.environ) -> ConfiguredCredentials:
    """Credentials from ``KUBECONFIG``, else the pod's service account, else ``~/.kube/config``."""
    if named := environ.get("KUBECONFIG"):
        return from_kubeconfig(named)
    if environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ=environ)
    return from_kubeconfig(Path.home() / ".kube" / "config")


def _checked_url(found: Any) -> str:
    url = str(found.host).rstrip("/")
    parts = urlsplit(url)
    if not found.verify_ssl:
        raise CredentialsUnusable(
            "kubeconfig: insecure-skip-tls-verify: true is not accepted; "
            "give certificate-authority or certificate-authority-data instead"
        )
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname or "")):
        return url
    raise CredentialsUnusable(f"kubeconfig: server: {url!r} is not an https:// address")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
