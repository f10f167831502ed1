"""The options of ``carrel up`` in the form in which it uses them.

Every function raises ``StartupError`` that names the option and what would be right.
"""

import ipaddress
import re
import ssl
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from carrel import units
from carrel.errors import BadSetting
from carrel_hub.front.traefik import Tls
from carrel_hub.settings import OWN, Gpus
from carrel_hub.sign_in import SignIn, read_secret
from carrel_hub.up.checks import StartupError

LOCALHOST: Final = "localhost"
LOOPBACK: Final = ("127.0.0.1", "localhost")
_HOST_NAME: Final = re.compile(r"(?=.{1,253}$)([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")
_ENVIRONMENT_NAME: Final = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]{0,62}")
MIB: Final = 1024**2


@dataclass(frozen=True, slots=True)
class Options:
    """The checked options of the command line."""

    state_dir: Path
    host: str
    port: int
    gpus: Gpus
    demo: bool
    database_url: str
    environments: dict[str, str]
    domain: str
    tls: Tls | None
    trusted_proxies: list[str]
    request_seconds: int
    sign_in: SignIn | None
    stop_jobs: bool


def tls(
    certificate: Path | None, key: Path | None, domains: Sequence[str], email: str, plain_port: int
) -> Tls | None:
    """The TLS settings, or ``None`` for plain HTTP."""
    files = certificate is not None or key is not None
    if files and domains:
        raise StartupError("--tls-cert and --acme-domain exclude each other: choose one.")
    if not files and not domains:
        if plain_port or email:
            given = "--plain-port" if plain_port else "--acme-email"
            raise StartupError(f"{given} needs TLS: --tls-cert and --tls-key, or --acme-domain.")
        return None
    if files:
        if certificate is None or key is None:
            raise StartupError("--tls-cert and --tls-key belong together: give both.")
        return _of_files(
            certificate.expanduser().absolute(), key.expanduser().absolute(), plain_port
        )
    for domain in domains:
        if not _HOST_NAME.fullmatch(domain):
            raise StartupError(
                f"--acme-domain is {domain!r}; it should be a full name such as gpu.example.org."
            )
    if "@" not in email:
        raise StartupError(f"--acme-email is {email!r}; it should be an address that is read.")
    return Tls(acme_domains=list(domains), acme_email=email, plain_port=plain_port)


def domain(given: str | None, host: str, encrypted: Tls | None) -> str:
    """The name below which everything has a host of its own; empty: there are none.

    By itself that is ``localhost``, whose names below it every browser leads to this machine.
    """
    if given is None:
        return LOCALHOST if host in LOOPBACK and encrypted is None else ""
    if not given:
        return ""
    if given != LOCALHOST and not _HOST_NAME.fullmatch(given):
        raise StartupError(
            f"--domain is {given!r}; it should be a full name such as hub.example.org."
        )
    if encrypted is not None and encrypted.acme_domains:
        raise StartupError(
            "--domain needs a certificate for all names below it, which --acme-domain does not "
            "get: give --tls-cert and --tls-key."
        )
    return given


def _of_files(certificate: Path, key: Path, plain_port: int) -> Tls:
    """Refuse now what the proxy could only complain of in its log."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise StartupError(
            f"--tls-cert {certificate} and --tls-key {key} are no certificate and its key (PEM): "
            f"{error.strerror or error}."
        ) from None
    return Tls(certificate=certificate, key=key, plain_port=plain_port)


def networks(texts: Sequence[str]) -> list[str]:
    """Networks in their canonical form."""
    try:
        return [str(ipaddress.ip_network(text)) for text in texts]
    except ValueError as error:
        raise StartupError(f"--trusted-proxy: {error}; 10.1.2.3 or 10.1.0.0/16 is right.") from None


def environments(texts: Iterable[str]) -> dict[str, str]:
    """Python environments for workspaces, as ``NAME=FOLDER``; name to prefix."""
    found: dict[str, str] = {}
    for text in texts:
        name, sign, folder = text.partition("=")
        if not sign or not _ENVIRONMENT_NAME.fullmatch(name) or name == OWN or name in found:
            raise StartupError(
                f"--environment {text!r}: NAME=FOLDER is right, each NAME once, of letters, "
                f"digits, dots and hyphens, and not {OWN!r}."
            )
        prefix = Path(folder).expanduser().absolute()
        if not (prefix / "bin" / "python").exists():
            raise StartupError(
                f"--environment {text!r}: {prefix} is no Python environment: it has no bin/python."
            )
        found[name] = str(prefix)
    return found


def sign_in(file: Path | None, *, demo: bool) -> SignIn | None:
    """The sign-in by the file's directory; ``None``: accounts of this machine."""
    if file is None:
        return None
    if demo:
        raise StartupError("--sign-in and --demo exclude each other: the demo has its own people.")
    try:
        found = SignIn.load(file.expanduser())
        read_secret(found.secret_file)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise StartupError(f"--sign-in {file}: {error}") from None
    return found


def mebibytes(text: str, option: str) -> int:
    """A size in MiB, typed as ``24G``, ``24GiB`` or ``24576M``."""
    try:
        found = round(units.memory_bytes(text, option) / MIB)
    except BadSetting as error:
        raise StartupError(str(error)) from None
    if not found:
        raise StartupError(f"{option} {text!r} is less than 1 MiB; write 24G or 24576M.")
    return found
