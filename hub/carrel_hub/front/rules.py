"""Rules of Traefik for the Hub's routes, and hosts below the Hub's own.

There is a host for each user's servers and one for each route of a workload. Wildcard DNS leads
them all to the front. The Hub tells Traefik of users' hosts; here stands the rest: routes' hosts
lead to the gateway, and services stay in reach at any other address of the front, for programs that
cannot look up names below ``localhost``. Pages of the Hub and the console are shown on the Hub's
own host alone.

Traefik compares paths after it decoded all but the reserved characters (RFC 3986, 2.2), and takes
the longer of two prefixes only because we say so: by itself it compares the lengths of rules.
Names of users and of their servers stand in routes, so what a rule compares with is quoted.
"""

import hashlib
import re
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from carrel_hub.front.origins import LONGEST

HOST_PRIORITY: Final = 1_000_000
ROUTES: Final = "carrel-routes"
CANONICAL: Final = "carrel-canonical"
_PLAIN: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_HASHED: Final = "u-"
_RESERVED: Final = re.compile(
    "%(?=3A|2F|3F|23|5B|5D|40|21|24|26|27|28|29|2A|2B|2C|3B|3D|25)", re.IGNORECASE
)
_ENCODED: Final = re.compile("%[0-9a-f]{2}", re.IGNORECASE)


def rule(routespec: str) -> tuple[str, int]:
    """The rule and its priority. Raises ``ValueError`` for what no request can match."""
    host, _, path = routespec.partition("/")
    path = as_compared(f"/{path}")
    if not path.endswith("/") or not (host + path).isprintable() or not host.isascii():
        raise ValueError(f"the route {routespec!r} is no [host]/path/ that a request can have")
    found = f"PathPrefix({_quoted(path)})"
    if path != "/":
        found = f"({found} || Path({_quoted(path.rstrip('/'))}))"
    if not host:
        return found, len(path)
    return f"Host({_quoted(host)}) && {found}", HOST_PRIORITY + len(path)


def as_compared(path: str) -> str:
    """A path as Traefik compares it: reserved characters stay encoded as they are."""
    capital = _ENCODED.sub(lambda found: found[0].upper(), path)
    return unquote(_RESERVED.sub("%25", capital), errors="strict")


def _quoted(text: str) -> str:
    """A Go string literal."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def host_of(name: str, domain: str, kind: str) -> str:
    """``JupyterHub.subdomain_hook``: of a user's servers, or of a service, which has the Hub's.

    Labels of routes have two hyphens in a row somewhere, those of users never.
    """
    if kind != "user":
        return domain
    plain = _PLAIN.fullmatch(name) and len(name) <= LONGEST and not name.isnumeric()
    if plain and not name.startswith(_HASHED):
        return f"{name}.{domain}"
    return f"{_HASHED}{hashlib.sha256(name.encode()).hexdigest()[:40]}.{domain}"


def rules_of_traefik(public_url: str, services: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Routers, services and middlewares beside the Hub's routes.

    Args:
        public_url: the Hub's own address.
        services: addresses of our services by name; the gateway's serves routes' hosts.
    """
    host = urlsplit(public_url).hostname or ""
    below = re.escape(host).replace("\\-", "-")
    routers: dict[str, Any] = {
        ROUTES: {
            "rule": f"HostRegexp(`^[a-z0-9-]+--[a-z0-9-]+\\.{below}$`)",
            "priority": HOST_PRIORITY - 1,
            "service": "carrel-any-gateway",
        },
        CANONICAL: {
            "rule": f"!Host(`{host}`) && Method(`GET`) && (Path(`/`)"
            " || PathPrefix(`/services/console/`)"
            " || PathPrefix(`/hub/`) && !PathPrefix(`/hub/api/`)"
            " || Path(`/hub/api/oauth2/authorize`))",
            "priority": HOST_PRIORITY - 2,
            "middlewares": [CANONICAL],
            "service": "noop@internal",
        },
    }
    for name in services:
        routers[f"carrel-any-{name}"] = {
            "rule": f"PathPrefix(`/services/{name}/`)",
            "priority": HOST_PRIORITY // 2,
            "service": f"carrel-any-{name}",
        }
    return {
        "routers": routers,
        "services": {
            f"carrel-any-{name}": {"loadBalancer": {"servers": [{"url": url}]}}
            for name, url in services.items()
        },
        "middlewares": {
            CANONICAL: {
                "redirectRegex": {
                    "regex": "^https?://[^/]+/(.*)$",
                    "replacement": f"{public_url}/${{1}}",
                }
            }
        },
    }
