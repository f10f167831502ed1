"""Whether users' work gets networks of its own on this machine; looked at before anything starts.

Where the machine refuses, all work shares the machine's network, and that is said.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from carrel_hub.settings import InstallationSettings

MODE: Final = "CARREL_TASK_NETWORK"
BLOCK: Final = "CARREL_NETWORK_BLOCK"
PROBE: Final = (
    sys.executable, "-P", "-m", "carrel_scheduler.engines.local.network.setup", "--probe",
)  # fmt: skip
PROBE_SECONDS: Final = 60
REACHABLE: Final = "users' programs can reach each other's ports"


@dataclass(frozen=True, slots=True)
class NetworkFacts:
    """A line for the screen, and the settings for the scheduler."""

    line: str
    told: Mapping[str, str] = field(default_factory=dict)


def find_network(
    settings: InstallationSettings,
    *,
    privileged: bool | None = None,
    environment: Mapping[str, str] = os.environ,
    refusal: Callable[[], str] | None = None,
) -> NetworkFacts:
    """Test what the machine allows; takes about a second as root."""
    if not (os.geteuid() == 0 if privileged is None else privileged):
        return NetworkFacts(f"shared: {REACHABLE}; run as root to part them")
    if environment.get(MODE) == "shared":
        return NetworkFacts(f"shared, as {MODE} says: {REACHABLE}")
    why = (refusal or _refusal)()
    if why:
        return NetworkFacts(f"shared: {REACHABLE}, because {why}")
    ports = settings.ports
    reached = [ports.hub, ports.scheduler, ports.gateway, settings.port]
    told = {MODE: "isolated", "CARREL_TASK_PORTS": ",".join(map(str, reached))}
    if not settings.on_loopback:
        told["CARREL_TASK_PUBLIC_PORT"] = str(settings.port)
    if BLOCK in environment:
        told[BLOCK] = environment[BLOCK]
    return NetworkFacts(
        "each user's work is in a network of its own, with this machine's way out", told
    )


def _refusal() -> str:
    try:
        done = subprocess.run(
            PROBE,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode != 0:
        return done.stderr.strip().rpartition("\n")[2] or f"exit code {done.returncode}"
    return done.stdout.strip()
