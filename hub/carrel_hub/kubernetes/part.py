"""Become one of the processes beside the Hub: ``python -m carrel_hub.kubernetes.part NAME``.

All are told by the same file and secret as the Hub, so no part has an environment of its own that
could say something else. ``NAME`` is ``proxy``, ``console`` or ``gateway``.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from carrel_hub import scopes, services
from carrel_hub.keys import Keys
from carrel_hub.kubernetes.config import told
from carrel_hub.kubernetes.settings import ClusterSettings

EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - in a pod, whose network policies say who comes
PUBLIC_PORT: Final = 8000


@dataclass(frozen=True, slots=True)
class Process:
    """A command and what it is told beyond what the container has."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)


def process(name: str, settings: ClusterSettings, keys: Keys) -> Process:
    """What to run. Raises ``ValueError`` for an unknown name."""
    if name == "proxy":
        return _proxy(settings, keys)
    if name in (scopes.CONSOLE, scopes.GATEWAY):
        return _service(name, settings, keys)
    raise ValueError(f"there is no part {name!r}; proxy, console and gateway are right")


def _proxy(settings: ClusterSettings, keys: Keys) -> Process:
    api = urlsplit(settings.proxy_api_url).port or PUBLIC_PORT + 1
    command = [
        *(sys.executable, "-P", "-m", "carrel_hub.proxy"),
        *("--ip", EVERYWHERE, "--port", str(PUBLIC_PORT)),
        *("--api-ip", EVERYWHERE, "--api-port", str(api)),
        *("--default-target", settings.hub_url),
        *("--error-target", f"{settings.hub_url}/hub/error"),
    ]
    return Process(command, {"CONFIGPROXY_AUTH_TOKEN": keys.proxy, "TZ": "UTC"})


def _service(name: str, settings: ClusterSettings, keys: Keys) -> Process:
    """It listens in its own pod; others find it by the name of its service."""
    port = urlsplit(getattr(settings, f"{name}_url")).port
    environment = services.hub_environment(settings, keys, name)
    environment |= services.own_environment(settings, name)
    environment["JUPYTERHUB_SERVICE_URL"] = f"http://{EVERYWHERE}:{port}"
    return Process(services.commands()[name], environment)


def main() -> None:
    """Become the process; does not return."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m carrel_hub.kubernetes.part proxy|console|gateway")
    try:
        part = process(sys.argv[1], *told())
    except (OSError, ValueError) as error:  # a file that cannot be read, or says something wrong
        sys.exit(f"{sys.argv[1]}: {error}")
    os.execve(sys.executable, list(part.command), {**os.environ, **part.environment})  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
