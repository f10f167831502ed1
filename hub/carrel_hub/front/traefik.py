"""Traefik's program and its static configuration: where it listens, how long, and what it logs.

Slow requests end: a request has to arrive, body included, within ``request_seconds``; answers and
websockets may last. The access log names method, host and path without the query, and no header, so
no token and no cookie is in it. Nothing is reported to anybody.
"""

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

PUBLIC: Final = "public"
INTERNAL: Final = "internal"
PLAIN: Final = "plain"
RESOLVER: Final = "acme"
REQUEST_SECONDS: Final = 300
SHORTEST_REQUEST_SECONDS: Final = 10
LONGEST_REQUEST_SECONDS: Final = 24 * 3600
IDLE_SECONDS: Final = 120
# Addresses and cookies of sign-ins get long; as much as the Hub takes.
LARGEST_HEAD_BYTES: Final = 64 * 1024
SHUTDOWN_SECONDS: Final = 1
STREAMS: Final = 100


RequestSeconds = Annotated[
    int, msgspec.Meta(ge=SHORTEST_REQUEST_SECONDS, le=LONGEST_REQUEST_SECONDS)
]
"""Within how many seconds a request has to arrive, with its body: an upload has no longer."""


class TraefikMissingError(Exception):
    """Traefik is not installed."""


def find_traefik() -> str:
    """Traefik beside our Python, where its wheel puts it, or on the ``PATH``.

    Raises ``TraefikMissingError``.
    """
    beside = str(Path(sys.executable).with_name("traefik"))
    found = shutil.which(beside) or shutil.which("traefik")
    if found is None:
        raise TraefikMissingError("Traefik, the proxy, is not installed")
    return found


class Tls(msgspec.Struct, kw_only=True, frozen=True):
    """TLS of the public port: with files, or with certificates of an ACME authority.

    Attributes:
        certificate, key: PEM files; both or none.
        acme_domains: names to get certificates for; the authority asks at port 443.
        acme_email: the account's address with the authority.
        plain_port: answers plain HTTP with a redirect to HTTPS; 0: nobody does.
    """

    certificate: Path | None = None
    key: Path | None = None
    acme_domains: list[str] = []
    acme_email: str = ""
    plain_port: int = 0


class Listening(msgspec.Struct, kw_only=True, frozen=True):
    """The addresses and certificates of one Traefik.

    Attributes:
        public, internal: ``host:port``; the Hub alone may ask the internal one, but for health.
        trusted_proxies: networks of proxies before it whose ``X-Forwarded-*`` are believed.
        access_log: a file, or the program's output.
        state: folder for certificates that it gets by itself.
        request_seconds: a request has to arrive within them, with its body.
    """

    public: str
    internal: str
    tls: Tls | None = None
    trusted_proxies: list[str] = []
    access_log: Path | None = None
    state: Path | None = None
    request_seconds: RequestSeconds = REQUEST_SECONDS


def from_file(folder: Path) -> dict[str, Any]:
    """Read routes from files of this machine, and follow their changes."""
    return {"file": {"directory": str(folder), "watch": True}}


def from_hub(url: str, token: str) -> dict[str, Any]:
    """Routes from the Hub, asked twice a second; the last answer stays while it is away."""
    return {
        "http": {
            "endpoint": url,
            "pollInterval": "500ms",
            "pollTimeout": "3s",
            "headers": {"Authorization": f"token {token}"},
        }
    }


def configuration(listening: Listening, provider: dict[str, Any]) -> dict[str, Any]:
    """The complete configuration."""
    found: dict[str, Any] = {
        "global": {"checkNewVersion": False, "sendAnonymousUsage": False},
        "log": {"level": "WARN", "noColor": True},
        "api": {"dashboard": False},
        "ping": {"entryPoint": INTERNAL},
        "providers": {"providersThrottleDuration": "0s", **provider},
        "accessLog": {
            "format": "json",
            "fields": {
                "headers": {"defaultMode": "drop"},
                "queryParameters": {"defaultMode": "drop"},
                "names": {"ClientUsername": "drop"},
            },
        },
        "entryPoints": {
            PUBLIC: _entry(listening.public, listening),
            INTERNAL: _entry(listening.internal, listening),
        },
    }
    if listening.access_log is not None:
        found["accessLog"]["filePath"] = str(listening.access_log)
    # Only what was asked for by people is written down, not the Hub's own questions.
    found["entryPoints"][INTERNAL]["observability"] = {"accessLogs": False}
    if listening.tls is not None:
        _speak_tls(found, listening, listening.tls)
    return found


def _entry(address: str, listening: Listening) -> dict[str, Any]:
    return {
        "address": address,
        "forwardedHeaders": {"trustedIPs": listening.trusted_proxies},
        "transport": {
            "lifeCycle": {"graceTimeOut": f"{SHUTDOWN_SECONDS}s"},
            "respondingTimeouts": {
                "readTimeout": f"{listening.request_seconds}s",
                "idleTimeout": f"{IDLE_SECONDS}s",
            },
        },
        "http": {
            "maxHeaderBytes": LARGEST_HEAD_BYTES,
            # Headers such as X_Forwarded_User, which some servers read as X-Forwarded-User.
            "aliasHeadersStrategy": "delete",
            "encodeQuerySemicolons": True,
        },
        "http2": {"maxConcurrentStreams": STREAMS},
    }


def _speak_tls(found: dict[str, Any], listening: Listening, tls: Tls) -> None:
    entries = found["entryPoints"]
    secured: dict[str, Any] = {"options": "default"}
    if tls.acme_domains:
        main, *others = tls.acme_domains
        secured |= {"certResolver": RESOLVER, "domains": [{"main": main, "sans": others}]}
        storage = str((listening.state or Path()) / "acme.json")
        acme = {"email": tls.acme_email, "storage": storage, "tlsChallenge": {}}
        found["certificatesResolvers"] = {RESOLVER: {"acme": acme}}
    entries[PUBLIC]["http"]["tls"] = secured
    if tls.plain_port:
        host, _, port = listening.public.rpartition(":")
        entries[PLAIN] = _entry(f"{host}:{tls.plain_port}", listening)
        to = {"to": f":{port}", "scheme": "https", "permanent": False}
        entries[PLAIN]["http"]["redirections"] = {"entryPoint": to}
