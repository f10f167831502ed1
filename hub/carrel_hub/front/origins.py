"""An origin of its own for each route: the browser itself keeps programs of different people apart.

``<name>--<project>.<domain>`` is the first route of a workload, ``<route>--<name>--<project>``
another one. One label, so that one wildcard name and certificate serve all. Users' own hosts never
contain two hyphens in a row. What does not fit into a label, or could be read in two ways, gets one
made from its hash.
"""

import hashlib
import re
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

MAIN: Final = "main"
LONGEST: Final = 63
HASHED: Final = "h"
LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PLAIN: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_RESERVED_BY_DNS: Final = 2
"""Characters before two hyphens that say how the rest is encoded, as in ``xn--``."""


def label(project: str, name: str, route: str = MAIN) -> str:
    """The label of a route, which no other route has."""
    parts = (name, project) if route == MAIN else (route, name, project)
    made = "--".join(parts)
    plain = all(_PLAIN.fullmatch(part) for part in parts)
    free = len(parts[0]) != _RESERVED_BY_DNS and parts[0] != HASHED
    if plain and free and len(made) <= LONGEST:
        return made
    digest = hashlib.sha256(f"{project}/{name}/{route}".encode()).hexdigest()
    return f"{HASHED}--{digest[:40]}"


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of routes. ``public_url``: the Hub's own origin; empty: routes have none.

    Attributes:
        netloc: the Hub's host and port, below which there is a label for each route.
    """

    public_url: str = ""
    scheme: str = field(init=False)
    netloc: str = field(init=False)

    def __post_init__(self) -> None:
        parts = urlsplit(self.public_url)
        object.__setattr__(self, "scheme", parts.scheme)
        object.__setattr__(self, "netloc", parts.netloc.lower())

    @property
    def secure(self) -> bool:
        """Whether browsers speak TLS with them."""
        return self.scheme == "https"

    def of(self, project: str, name: str, route: str = MAIN) -> str:
        """The origin of a route, without a trailing slash."""
        return self.at(label(project, name, route))

    def at(self, of_route: str) -> str:
        """The origin with this label."""
        return f"{self.scheme}://{of_route}.{self.netloc}"

    def label_in(self, host: str) -> str:
        """The label that a request's ``Host`` names; empty for other hosts than those of routes."""
        if not self.netloc:
            return ""
        found = host.lower().removesuffix(f".{self.netloc}")
        one_of_ours = found != host.lower() and "--" in found and LABEL.fullmatch(found)
        return found if one_of_ours else ""
