"""One route of the Hub as a rule of Traefik.

Traefik compares paths after it decoded all but the reserved characters (RFC 3986, 2.2), and takes
the longer of two prefixes only because we say so: by itself it compares the lengths of rules.
Names of users and of their servers stand in routes, so what a rule compares with is quoted.
"""

import re
from typing import Final
from urllib.parse import unquote

HOST_PRIORITY: Final = 1_000_000
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
    """As a string of Go."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
