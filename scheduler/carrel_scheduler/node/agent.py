"""``carrel-node``: the agent on a node of a cluster, which tells the scheduler of the node's GPUs.

It looks every ``CARREL_NODE_SECONDS`` and sends what it saw; nothing of it listens, so nobody on
the node or the network can ask it. It shows the token that the kubelet gave its pod: the API server
says on which node that pod is, and the scheduler takes reports about that node only. It changes
nothing on the node and needs no right but to look: no capability, no root.

==========================  ======================================================================
``CARREL_NODE_NAME``        the node's name in the cluster
``CARREL_API_URL``          the scheduler's address, without ``/api/v1``
``CARREL_NODE_TOKEN_FILE``  where the token is; it is read at each report, since it is renewed
``CARREL_NODE_SECONDS``     between two looks; default 10
``CARREL_DCGM_URL``         metrics of DCGM's exporter; unset: the driver's library is asked
==========================  ======================================================================
"""

import logging
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec
import pynvml
from typing_extensions import override

from carrel_scheduler.node.contract import MOST_DEVICES, DeviceProvider, NodeFacts, NodeReport
from carrel_scheduler.node.nvml import NvmlProvider, NvmlUnusable, open_nvml
from carrel_scheduler.node.owners import PodOwners

log = logging.getLogger("carrel_node")
TOKEN_FILE: Final = "/var/run/secrets/carrel/token"  # noqa: S105 - a path
SEND_SECONDS: Final = 10.0
SEARCH_SECONDS: Final = 60.0
LEAST_SECONDS, MOST_SECONDS = 1.0, 30.0
MOST_TOKEN: Final = 16_384


class BadSetting(Exception):  # noqa: N818 - an outcome to tell
    """A variable is missing or has an invalid value."""


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's settings from the environment."""

    node: str
    api_url: str
    token_file: Path
    seconds: float
    dcgm_url: str

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "AgentSettings":
        """Read the environment; raises ``BadSetting``."""
        for name in ("CARREL_NODE_NAME", "CARREL_API_URL"):
            if not env.get(name):
                raise BadSetting(f"{name} is not set")
        for name in ("CARREL_API_URL", "CARREL_DCGM_URL"):
            if env.get(name) and urlsplit(env[name]).scheme not in ("http", "https"):
                raise BadSetting(f"{name}={env[name]!r}: an address as http://host:port is right")
        given = env.get("CARREL_NODE_SECONDS") or "10"
        try:
            seconds = float(given)
        except ValueError:
            seconds = 0.0
        if not LEAST_SECONDS <= seconds <= MOST_SECONDS:
            right = f"a number from {LEAST_SECONDS:g} to {MOST_SECONDS:g} is right"
            raise BadSetting(f"CARREL_NODE_SECONDS={given!r}: {right}")
        return cls(
            node=env["CARREL_NODE_NAME"],
            api_url=env["CARREL_API_URL"].rstrip("/"),
            token_file=Path(env.get("CARREL_NODE_TOKEN_FILE") or TOKEN_FILE),
            seconds=seconds,
            dcgm_url=env.get("CARREL_DCGM_URL", ""),
        )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the token is sent to the scheduler only."""

    @override
    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


class Reporter:
    """Sends reports."""

    def __init__(self, settings: AgentSettings) -> None:
        self._token_file = settings.token_file
        self._url = f"{settings.api_url}/api/v1/nodes/{quote(settings.node, safe='')}/report"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())

    def send(self, report: NodeReport) -> None:
        """Send one. Raises ``OSError``."""
        with self._token_file.open() as file:
            token = file.read(MOST_TOKEN).strip()
        request = urllib.request.Request(  # noqa: S310 - http or https, as the settings check
            self._url,
            data=msgspec.json.encode(report),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method="POST",
        )
        with self._opener.open(request, timeout=SEND_SECONDS) as answer:
            answer.read(MOST_TOKEN)


def look(provider: DeviceProvider) -> NodeReport:
    """One report; process ids stay on the node."""
    facts = provider.facts()
    use = provider.sample({})
    return NodeReport(
        driver=facts.driver,
        devices=facts.devices[:MOST_DEVICES],
        use=tuple(msgspec.structs.replace(one, pids=()) for one in use[:MOST_DEVICES]),
        links=facts.links,
    )


def find_provider(settings: AgentSettings) -> DeviceProvider | None:
    """The provider of the node's GPUs; ``None`` while it has none."""
    node = NodeFacts(name=settings.node, cpu_milli=0, memory_mib=0, devices=(), simulated=False)
    if settings.dcgm_url:
        # Only where it is used: its parser takes memory.
        from carrel_scheduler.node.dcgm import DcgmProvider

        return DcgmProvider(node, settings.dcgm_url, time.time)
    try:
        return NvmlProvider(node, pynvml, owners=PodOwners()) if open_nvml(pynvml) else None
    except NvmlUnusable as error:
        log.warning("%s", error)
        return None


def run(
    provider: DeviceProvider,
    send: Callable[[NodeReport], None],
    seconds: float,
    pause: Callable[[float], bool],
) -> None:
    """Look and send until ``pause`` returns true; what fails is told once until it works again."""
    trouble = ""
    while True:
        try:
            send(look(provider))
        except Exception as error:  # noqa: BLE001 - the next look may succeed
            told = _in_words(error)
            if told != trouble:
                log.warning("the report of this node's GPUs could not be sent: %s", told)
            trouble = told
        else:
            if trouble:
                log.info("the scheduler receives reports of this node's GPUs again")
            trouble = ""
        if pause(seconds):
            return


def _in_words(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        with error:
            return f"it answered {error.code} {error.reason}"
    return f"{type(error).__name__}: {error}"


def main() -> None:
    """Entry point of ``carrel-node``."""
    logging.basicConfig(
        level=os.environ.get("CARREL_LOG_LEVEL", "INFO"),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    try:
        settings = AgentSettings.from_environment(os.environ)
    except BadSetting as error:
        sys.exit(f"carrel-node: {error}")
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    provider = find_provider(settings)
    if provider is None:
        log.info("this node has no GPUs; checked again every %.0f s", SEARCH_SECONDS)
    while provider is None:
        if ended.wait(SEARCH_SECONDS):
            return
        provider = find_provider(settings)
    log.info("reporting to %s the GPUs of %s", settings.api_url, settings.node)
    run(provider, Reporter(settings).send, settings.seconds, ended.wait)


if __name__ == "__main__":
    main()
