"""What the command line says of the public port: TLS, its name, and proxies before ours."""

import errno
import ipaddress
import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from carrel_hub.front.traefik import Tls
from carrel_hub.up.trouble import Trouble

LOCALHOST: Final = "localhost"
LOOPBACK: Final = ("127.0.0.1", "localhost")
_NAME: Final = re.compile(r"(?=.{1,253}$)([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]{2,63}")


def tls(
    certificate: Path | None, key: Path | None, domains: Sequence[str], email: str, plain_port: int
) -> Tls | None:
    """What was asked for, or ``None`` for plain HTTP. Raises ``Trouble``."""
    files = certificate is not None or key is not None
    if files and domains:
        raise Trouble("--tls-cert and --acme-domain exclude each other: choose one.")
    if not files and not domains:
        if plain_port or email:
            given = "--plain-port" if plain_port else "--acme-email"
            raise Trouble(f"{given} needs TLS: --tls-cert and --tls-key, or --acme-domain.")
        return None
    if files:
        if certificate is None or key is None:
            raise Trouble("--tls-cert and --tls-key belong together: give both.")
        return _of_files(
            certificate.expanduser().absolute(), key.expanduser().absolute(), plain_port
        )
    for domain in domains:
        if not _NAME.fullmatch(domain):
            raise Trouble(
                f"--acme-domain is {domain!r}; it should be a full name such as gpu.example.org."
            )
    if "@" not in email:
        raise Trouble(f"--acme-email is {email!r}; it should be an address that is read.")
    return Tls(acme_domains=list(domains), acme_email=email, plain_port=plain_port)


def domain(given: str | None, host: str, encrypted: Tls | None) -> str:
    """The name below which everything has a host of its own; empty: there are none.

    By itself that is ``localhost``, whose names below it every browser leads to this machine.
    Raises ``Trouble``.
    """
    if given is None:
        return LOCALHOST if host in LOOPBACK and encrypted is None else ""
    if not given:
        return ""
    if given != LOCALHOST and not _NAME.fullmatch(given):
        raise Trouble(f"--domain is {given!r}; it should be a full name such as hub.example.org.")
    if encrypted is not None and encrypted.acme_domains:
        raise Trouble(
            "--domain needs a certificate for all names below it, which --acme-domain does not "
            "get: give --tls-cert and --tls-key."
        )
    return given


@contextmanager
def held_for_us(name: str, port: int) -> Iterator[None]:
    """Keep the port of the other loopback address, which browsers try for ``localhost``, too.

    Nobody listens there, so they come to us; and nobody else can. Raises ``Trouble``.
    """
    if name != LOCALHOST:
        yield
        return
    with ExitStack() as stack:
        try:
            held = stack.enter_context(socket.socket(socket.AF_INET6))
            held.bind(("::1", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise Trouble(
                    f"Another program has port {port} of [::1], where browsers look for localhost; "
                    "choose another --port."
                ) from None
            # This machine has no IPv6.
        yield


def _of_files(certificate: Path, key: Path, plain_port: int) -> Tls:
    """Refuse now what the proxy could only complain of in its log."""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise Trouble(
            f"--tls-cert {certificate} and --tls-key {key} are no certificate and its key (PEM): "
            f"{error.strerror or error}."
        ) from None
    return Tls(certificate=certificate, key=key, plain_port=plain_port)


def networks(texts: Sequence[str]) -> list[str]:
    """Networks in their usual form. Raises ``Trouble``."""
    try:
        return [str(ipaddress.ip_network(text)) for text in texts]
    except ValueError as error:
        raise Trouble(f"--trusted-proxy: {error}; 10.1.2.3 or 10.1.0.0/16 is right.") from None
