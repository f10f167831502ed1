"""The processes of one machine: their commands and what each is told, no more than it needs."""

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from carrel_hub import scopes, services
from carrel_hub.front.traefik import Listening, configuration, find_traefik, from_file
from carrel_hub.keys import Keys
from carrel_hub.settings import InstallationSettings
from carrel_hub.up.ports import Listeners

_PASSED: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TMPDIR",
    "TZ",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
    "CUDA_VISIBLE_DEVICES",
    "PYTHONPATH",
    "XDG_RUNTIME_DIR",
)

_RULES = (
    "CARREL_ARTIFACT_DAYS",
    "CARREL_CHECKPOINT_DAYS",
    "CARREL_PROJECT_FILES_GIB",
    "CARREL_PAST_USE_FACTOR",
    "CARREL_PAST_USE_HALF_LIFE",
    "CARREL_RECLAIM_DELAY",
    "CARREL_RUNAI_METRICS",
    "CARREL_STALLED_AFTER",
    "CARREL_STALLED_GANGS",
    "CARREL_SYSTEM_ACCOUNTS",
    "CARREL_GPU_MEMORY_ENFORCEMENT",
    "CARREL_USER_NAMESPACES",
)
"""The variables of the scheduler's rules, for admins who start Carrel; see its settings."""


@dataclass(frozen=True, slots=True)
class ProcessPart:
    """A part that is a process. ``shown``: its name for people; ``listeners``: its sockets."""

    name: str
    shown: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(repr=False)
    listeners: Mapping[str, socket.socket] = field(default_factory=dict)


def all_parts(
    settings: InstallationSettings,
    keys: Keys,
    config: Path,
    network: Mapping[str, str] | None = None,
    listeners: Listeners | None = None,
) -> list[ProcessPart]:
    """Proxy, Hub, scheduler, console and gateway, in the order in which they can be used.

    ``network`` is what the scheduler is told of the tasks' network. A part without any
    of ``listeners`` listens by itself.
    """
    base = {name: os.environ[name] for name in _PASSED if name in os.environ}
    base["PYTHONUNBUFFERED"] = "1"

    def part(name: str, shown: str, command: Sequence[str], told: Mapping[str, str]) -> ProcessPart:
        log, own = settings.log_dir / f"{name}.log", (listeners or {}).get(name, {})
        return ProcessPart(name, shown, command, log, {**base, **told}, own)

    def service(name: str, shown: str) -> ProcessPart:
        told = services.service_environment(settings, keys, name)
        told |= services.carrel_environment(settings, name)
        if name == scopes.SCHEDULER:
            told |= {rule: os.environ[rule] for rule in _RULES if rule in os.environ}
            told |= network or {}
        label = "scheduler" if name == scopes.SCHEDULER else name
        return part(label, shown, services.commands()[name], told)

    return [
        part("proxy", "Proxy", [find_traefik(), f"--configFile={traefik_file(settings)}"], {}),
        part("hub", "Hub", [sys.executable, "-m", "carrel_hub.hub_process", "-f", str(config)],
             {"JUPYTERHUB_CRYPT_KEY": keys.crypt}),
        service(scopes.SCHEDULER, "Scheduler"),
        service(scopes.CONSOLE, "Console"),
        service(scopes.GATEWAY, "Gateway"),
    ]  # fmt: skip


def traefik_file(settings: InstallationSettings) -> Path:
    """The path of the proxy's configuration."""
    return settings.hub_dir / "traefik.yaml"


def write_traefik(settings: InstallationSettings) -> None:
    """Write the proxy's configuration, and create the folder of its routes."""
    settings.routes_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    listening = Listening(
        public=f"{host}:{settings.port}",
        internal=f"127.0.0.1:{settings.ports.proxy_api}",
        tls=settings.tls,
        trusted_proxies=settings.trusted_proxies,
        request_seconds=settings.request_seconds,
        access_log=settings.access_log,
        state=settings.hub_dir,
    )
    found = configuration(listening, from_file(settings.routes_dir))
    traefik_file(settings).write_bytes(msgspec.json.encode(found))


def write_config(
    settings: InstallationSettings, settings_file: Path, keys_file: Path, config: Path
) -> None:
    """Write the configuration of Hub and proxy; the Hub reads it and calls ``install``."""
    settings.save(settings_file)
    write_traefik(settings)
    config.write_text(
        '"""Written by `carrel up` at each start; what is changed here is lost."""\n\n'
        "from carrel_hub.config import install_from\n\n"
        "c = get_config()  # noqa\n"
        f"install_from(c, {str(settings_file)!r}, {str(keys_file)!r})\n"
    )
