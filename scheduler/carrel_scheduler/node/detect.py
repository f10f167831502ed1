"""Which devices this machine offers: its real GPUs, or simulated ones; never a mixture."""

import logging
import socket
from types import ModuleType
from typing import Final

import pynvml

from carrel_scheduler.node import machine
from carrel_scheduler.node.contract import DeviceProvider, NodeFacts
from carrel_scheduler.node.nvml import NvmlProvider, open_nvml
from carrel_scheduler.node.simulated import SimulatedProvider

DEFAULT_SIMULATED: Final = 4
MOST_SIMULATED: Final = 64
"""As many as a node may have."""
_log = logging.getLogger(__name__)


def detect(
    gpus: int | None,
    memory_mib: int,
    name: str,
    *,
    node_name: str = "",
    nvml: ModuleType = pynvml,
) -> DeviceProvider:
    """Real devices if there are any and ``gpus`` is ``None``, else simulated ones.

    Args:
        gpus: how many simulated devices; ``None`` asks for the real ones first.
        memory_mib: of each simulated device.
        name: model that simulated devices pose as.
        node_name: of this machine; empty means its host name.
        nvml: the ``pynvml`` module.

    Raises:
        ValueError: a number that makes no sense, naming field, value and what would be right.
        NvmlUnusable: there are real devices, but their driver does not work.
    """
    if gpus is not None and not 0 <= gpus <= MOST_SIMULATED:
        raise ValueError(f"gpus={gpus}: a number from 0 to {MOST_SIMULATED} is right")
    if memory_mib <= 0:
        raise ValueError(f"memory_mib={memory_mib}: a number above 0 is right")
    node = NodeFacts(
        name=node_name or socket.gethostname(),
        cpu_milli=machine.cpu_milli(),
        memory_mib=machine.memory_mib(),
        devices=(),
        simulated=False,
    )
    if gpus is None and open_nvml(nvml):
        return NvmlProvider(node, nvml)
    count = DEFAULT_SIMULATED if gpus is None else gpus
    _log.info("%d simulated GPUs of %d MiB", count, memory_mib)
    return SimulatedProvider(node, count=count, memory_mib=memory_mib, name=name)
