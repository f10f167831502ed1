"""``carrel-node``: the agent on a node of a cluster, which tells the scheduler of the node's GPUs.

It looks every ``CARREL_NODE_SECONDS`` and sends what it saw; nothing of it listens, so nobody on
the node or the network can ask it. It shows the token that the kubelet gave its pod: the API server
says on which node that pod is, and the scheduler takes reports about that node only. Without
``CARREL_MIG`` and ``CARREL_GPU_LIMITS`` it changes nothing on the node and needs no right but to
look: no capability, no root. With the first it asks the scheduler which MIG instances are wanted,
and makes them; with the second it has the driver limit the GPU memory of pods, as the answers to
its reports say.

==========================  ======================================================================
``CARREL_NODE_NAME``        the node's name in the cluster
``CARREL_API_URL``          the scheduler's address, without ``/api/v1``
``CARREL_NODE_TOKEN_FILE``  where the token is; it is read at each report, since it is renewed
``CARREL_NODE_SECONDS``     between two looks; default 10
``CARREL_DCGM_URL``         metrics of DCGM's exporter; unset: the driver's library is asked
``CARREL_MIG``              ``on``: it makes MIG instances for the scheduler
``CARREL_MIG_TAKES_ALL``    ``on``: it may use and remove idle instances that others made
``CARREL_MIG_RECORD``       the file of those that it made itself
``CARREL_GPU_LIMITS``       ``on``: it has the driver limit the memory of pods with a part of a GPU
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

from carrel_scheduler.environment import InvalidVariable, need, number, switch
from carrel_scheduler.node.contract import (
    MOST_DEVICES,
    Device,
    DeviceProvider,
    HealthCondition,
    MemoryLimits,
    MigOrders,
    MigReport,
    NodeFacts,
    NodeReport,
)
from carrel_scheduler.node.memory_limits import MemoryLimitError, PodLimits
from carrel_scheduler.node.mig import MigUnusable, NvmlMig
from carrel_scheduler.node.mig_records import ownership
from carrel_scheduler.node.mig_worker import MigWorker, serve
from carrel_scheduler.node.nvml import NO_MIG_MODE, NvmlProvider, NvmlUnusable, open_nvml
from carrel_scheduler.node.owners import PodOwners

log = logging.getLogger("carrel_node")
MIG_RECORD: Final = "/var/lib/carrel-node/instances.json"
TOKEN_FILE: Final = "/var/run/secrets/carrel/token"  # noqa: S105 - a path
SEND_SECONDS: Final = 10.0
ASK_SECONDS: Final = 40.0
SEARCH_SECONDS: Final = 60.0
LEAST_SECONDS, MOST_SECONDS = 1.0, 30.0
MOST_TOKEN: Final = 16_384
DIVIDED: Final = "divided"
MOST_ANSWER: Final = 4 * 1024 * 1024
NO_ANSWER: Final = b"{}"
"""The answer of a scheduler of an earlier version."""
MODE_IS_OFF: Final = "MIG mode is off: nvidia-smi -mig 1"


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's settings from the environment.

    ``mig``: it makes MIG instances for the scheduler, and writes down in ``mig_record`` which;
    ``mig_takes_all``: it may use and remove idle ones of others as well; ``gpu_limits``: it has the
    driver limit the memory of pods.
    """

    node: str
    api_url: str
    token_file: Path
    seconds: float
    dcgm_url: str
    mig: bool = False
    mig_takes_all: bool = False
    mig_record: Path = Path(MIG_RECORD)
    gpu_limits: bool = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "AgentSettings":
        """Read the environment; raises ``InvalidVariable``."""
        node, api_url = need(env, "CARREL_NODE_NAME"), need(env, "CARREL_API_URL")
        for name in ("CARREL_API_URL", "CARREL_DCGM_URL"):
            if env.get(name) and urlsplit(env[name]).scheme not in ("http", "https"):
                raise InvalidVariable(name, env[name], "an address as http://host:port")
        for name in ("CARREL_MIG", "CARREL_GPU_LIMITS"):
            if env.get("CARREL_DCGM_URL") and env.get(name) == "on":
                right = f"none beside {name}=on, which needs the driver,"
                raise InvalidVariable("CARREL_DCGM_URL", env["CARREL_DCGM_URL"], right)
        return cls(
            node=node,
            api_url=api_url.rstrip("/"),
            token_file=Path(env.get("CARREL_NODE_TOKEN_FILE") or TOKEN_FILE),
            seconds=number(
                env, "CARREL_NODE_SECONDS", 10.0, least=LEAST_SECONDS, most=MOST_SECONDS
            ),
            dcgm_url=env.get("CARREL_DCGM_URL", ""),
            mig=switch(env, "CARREL_MIG"),
            mig_takes_all=switch(env, "CARREL_MIG_TAKES_ALL"),
            mig_record=Path(env.get("CARREL_MIG_RECORD") or MIG_RECORD),
            gpu_limits=switch(env, "CARREL_GPU_LIMITS"),
        )


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: the token is sent to the scheduler only."""

    @override
    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


class NodeReporter:
    """Sends reports."""

    def __init__(self, settings: AgentSettings) -> None:
        self._token_file = settings.token_file
        self._url = f"{settings.api_url}/api/v1/nodes/{quote(settings.node, safe='')}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())

    def send(self, report: NodeReport) -> MemoryLimits:
        """Send one, and return the answer. Raises ``OSError`` and ``MsgspecError``."""
        answer = self._post("report", report, SEND_SECONDS)
        return msgspec.json.decode(answer or NO_ANSWER, type=MemoryLimits)

    def ask(self, report: MigReport) -> MigOrders:
        """Report results and fetch orders; the request waits a while where there are none.

        Raises ``OSError`` and ``MsgspecError``.
        """
        return msgspec.json.decode(self._post("mig", report, ASK_SECONDS), type=MigOrders)

    def _post(self, what: str, content: msgspec.Struct, seconds: float) -> bytes:
        with self._token_file.open() as file:
            token = file.read(MOST_TOKEN).strip()
        request = urllib.request.Request(  # noqa: S310 - http or https, as the settings check
            f"{self._url}/{what}",
            data=msgspec.json.encode(content),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            method="POST",
        )
        with self._opener.open(request, timeout=seconds) as answer:
            return bytes(answer.read(MOST_ANSWER))


def look(
    provider: DeviceProvider, worker: MigWorker | None = None, limits: PodLimits | None = None
) -> NodeReport:
    """Make a report; process ids stay on the node.

    ``worker`` divides the GPUs, ``limits`` limits the memory of pods, if there are such.
    """
    facts = provider.facts()
    devices = facts.devices[:MOST_DEVICES]
    if worker is not None:
        devices = tuple(_with_instances(one, worker) for one in devices)
    use = provider.sample({})
    return NodeReport(
        driver=facts.driver,
        devices=devices,
        use=tuple(msgspec.structs.replace(one, pids=()) for one in use[:MOST_DEVICES]),
        links=facts.links,
        limits_memory=limits is not None,
        limit_refusal="" if limits is None else limits.refusal,
    )


def _with_instances(device: Device, worker: MigWorker) -> Device:
    """A device with what is to be said of its MIG instances."""
    found = worker.conditions(device.uuid)
    if device.message == NO_MIG_MODE:
        closed = HealthCondition(key="mig-mode", severity="closed", message=MODE_IS_OFF)
        device = msgspec.structs.replace(device, broken=False, message="")
        found = (closed, *found)
    return msgspec.structs.replace(device, conditions=(*device.conditions, *found))


def find_worker(settings: AgentSettings) -> MigWorker | None:
    """The worker that makes MIG instances; ``None`` where it is off, or while it cannot."""
    if not settings.mig:
        return None
    try:
        devices = NvmlMig(pynvml)
    except (MigUnusable, pynvml.NVMLError) as error:
        log.warning("no MIG instances are made here: %s", error)
        return None
    return MigWorker(devices, ownership(None if settings.mig_takes_all else settings.mig_record))


def find_limits(settings: AgentSettings) -> PodLimits | None:
    """What limits the memory of pods; ``None`` where it is off, or the driver cannot."""
    if not settings.gpu_limits:
        return None
    limits = PodLimits()
    try:
        limits.try_driver()
    except MemoryLimitError as error:
        log.warning("the driver limits no GPU memory of pods here: %s", error)
        return None
    return limits


def find_provider(settings: AgentSettings) -> DeviceProvider | None:
    """The provider of the node's GPUs; ``None`` while it has none."""
    node = NodeFacts(
        name=settings.node,
        cpu_milli=0,
        memory_mib=0,
        devices=(),
        simulated=False,
        mig_model=DIVIDED if settings.mig else "",
    )
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
    send: Callable[[NodeReport], MemoryLimits],
    seconds: float,
    pause: Callable[[float], bool],
    worker: MigWorker | None = None,
    limits: PodLimits | None = None,
) -> None:
    """Look and send until ``pause`` returns true; what fails is told once until it works again."""
    trouble = ""
    while True:
        try:
            answer = send(look(provider, worker, limits))
            if limits is not None:
                limits.apply(answer.limits)
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
    except InvalidVariable as error:
        sys.exit(f"carrel-node: {error}")
    ended = threading.Event()
    for sent in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sent, lambda *_: ended.set())
    provider = find_provider(settings)
    if provider is None:
        log.info("this node has no GPUs; checked again every %.0f s", SEARCH_SECONDS)
    while provider is None:
        if ended.wait(SEARCH_SECONDS):
            return
        provider = find_provider(settings)
    log.info("reporting to %s the GPUs of %s", settings.api_url, settings.node)
    reporter, worker = NodeReporter(settings), find_worker(settings)
    limits = find_limits(settings)
    if worker is not None:
        log.info("making MIG instances of %s as the scheduler wants them", settings.node)
        asking = threading.Thread(
            target=serve, args=(worker, reporter.ask, ended.wait), daemon=True
        )
        asking.start()
    run(provider, reporter.send, settings.seconds, ended.wait, worker, limits)


if __name__ == "__main__":
    main()
