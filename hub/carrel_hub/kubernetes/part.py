"""Runs a process beside the Hub: ``python -m carrel_hub.kubernetes.part NAME``.

All are told by the same file as the Hub, so no part has an environment of its own that could say
something else; of the keys each is given the one of its own name. ``NAME`` is ``proxy``,
``console`` or ``gateway``.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from carrel_hub import scopes, services
from carrel_hub.front import traefik
from carrel_hub.front.provided import PROVIDED_PATH
from carrel_hub.front.traefik import TraefikMissingError, find_traefik
from carrel_hub.kubernetes.config import part_settings
from carrel_hub.kubernetes.settings import ClusterHubSettings

EVERYWHERE: Final = "0.0.0.0"  # noqa: S104 - in a pod, whose network policies say who comes
PUBLIC_PORT: Final = 8000
PROXY: Final = "proxy"
PARTS: Final = (PROXY, scopes.CONSOLE, scopes.GATEWAY)
CONFIGURATION: Final = Path("/tmp/traefik.yaml")  # noqa: S108 - a volume of the pod's own


@dataclass(frozen=True, slots=True)
class PartProcess:
    """A command, environment variables beyond the container's, and files that it reads."""

    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)
    files: Mapping[Path, bytes] = field(default_factory=dict, repr=False)


def process(name: str, settings: ClusterHubSettings, key: str) -> PartProcess:
    """The command of a part. Raises ``ValueError`` for an unknown name."""
    if name == PROXY:
        return _proxy(settings, key)
    if name in PARTS:
        return _service(name, settings, key)
    raise ValueError(f"there is no part {name!r}; {', '.join(PARTS)} are right")


def _proxy(settings: ClusterHubSettings, key: str) -> PartProcess:
    """The proxy. It asks the Hub for routes, so only its account may read its configuration."""
    api = urlsplit(settings.proxy_api_url).port or PUBLIC_PORT + 1
    listening = traefik.Listening(
        public=f":{PUBLIC_PORT}",
        internal=f":{api}",
        trusted_proxies=settings.trusted_proxies,
        request_seconds=settings.request_seconds,
    )
    provider = traefik.from_hub(f"{settings.hub_url}/hub{PROVIDED_PATH}", key)
    content = msgspec.json.encode(traefik.configuration(listening, provider))
    return PartProcess(
        [find_traefik(), f"--configFile={CONFIGURATION}"], {}, {CONFIGURATION: content}
    )


def _service(name: str, settings: ClusterHubSettings, key: str) -> PartProcess:
    """A service, which listens in its own pod; other parts find it by the name of its Service."""
    port = urlsplit(getattr(settings, f"{name}_url")).port
    environment = services.environment_for_token(settings, key, name)
    environment |= services.carrel_environment(settings, name)
    environment["JUPYTERHUB_SERVICE_URL"] = f"http://{EVERYWHERE}:{port}"
    return PartProcess(services.commands()[name], environment)


def main() -> None:
    """Run the process; does not return."""
    if len(sys.argv) != 2 or sys.argv[1] not in PARTS:
        sys.exit(f"usage: python -m carrel_hub.kubernetes.part {'|'.join(PARTS)}")
    try:
        part = process(sys.argv[1], *part_settings(sys.argv[1]))
        for path, content in part.files.items():
            path.touch(mode=0o600)
            path.write_bytes(content)
    except (
        OSError,
        ValueError,
        TraefikMissingError,
    ) as error:  # a file that cannot be read, or is wrong
        sys.exit(f"{sys.argv[1]}: {error}")
    os.execve(part.command[0], list(part.command), {**os.environ, **part.environment})  # noqa: S606 - no shell


if __name__ == "__main__":
    main()
