"""Needs of a pod as a request of the core.

Amounts are rounded up in steps, so that requests that differ by little are one class: CPU to 10
millicores, memory to MiB, from 1 GiB on to 16 MiB. What people write down is mostly a multiple.
"""

from typing import Final

from carrel_scheduler.core.requests import Request, Where
from carrel_scheduler.core.resources import MIB
from carrel_scheduler.engines.kubernetes.pods.needs import Needs
from carrel_scheduler.engines.kubernetes.pods.sharing import Share
from carrel_scheduler.engines.mig_resources import held_milli

CPU_STEP: Final = 10
MEMORY_STEPS: Final = ((1024, 1), (0, 16))
"""MiB below which the step applies (0: always), and the step in MiB."""
_NO_SHARE: Final = Share()


def request_of(needs: Needs, where: Where) -> Request:
    """The core's request for a pod with these needs."""
    share = needs.share or _NO_SHARE
    return Request(
        gpus=needs.gpus,
        cpu_milli=_up(needs.cpu_milli, CPU_STEP),
        memory_mib=memory_mib(needs.memory_bytes),
        share_milli=share.milli,
        gpu_memory_mib=share.memory_mib,
        devices=share.devices,
        extended=needs.extended,
        counted_milli=held_milli(needs.extended),
        where=where,
    )


def memory_mib(size: int) -> int:
    """Bytes in MiB, rounded up in steps."""
    mib = _up(size, MIB) // MIB
    step = next(step for below, step in MEMORY_STEPS if not below or mib < below)
    return _up(mib, step)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
