"""Hosts below the Hub's own: one for each user's servers, one for each route of work.

Wildcard DNS leads them all to the front. The Hub tells Traefik of users' hosts; here stands the
rest: routes' hosts lead to the gateway, and services stay in reach at any other address of the
front, for programs that cannot look up names below ``localhost``. Pages of the Hub and the console
are shown on the Hub's own host alone.
"""

import hashlib
import re
from typing import Any, Final
from urllib.parse import urlsplit

from carrel_hub.front.rules import HOST_PRIORITY
from carrel_hub.gateway.origins import LONGEST

ROUTES: Final = "carrel-routes"
CANONICAL: Final = "carrel-canonical"
_PLAIN: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_HASHED: Final = "u-"


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
