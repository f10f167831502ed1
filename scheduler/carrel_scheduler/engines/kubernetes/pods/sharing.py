"""Shares of GPUs, asked for by annotations of a pod.

They are understood, so that whoever asks for one is told which annotation says so, and refused:
nothing on the nodes of a cluster gives a container a part of a GPU.

| ours | elsewhere | means |
|---|---|---|
| ``carrel.dev/gpu-share: "0.5"`` | ``gpu-fraction`` | that part of a GPU, above 0 and below 1 |
| ``carrel.dev/gpu-memory: 10Gi`` | ``gpu-memory: "10240"`` (MiB) | that much memory of a GPU |
| ``carrel.dev/gpu-devices: "2"`` | ``gpu-fraction-num-devices`` | so many GPUs of one node |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Final

from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.engines.kubernetes.pods.errors import PodRefused
from carrel_scheduler.engines.kubernetes.pods.quantities import nanos, pieces
from carrel_schema.names import GROUP

SHARE: Final = (f"{GROUP}/gpu-share", "gpu-fraction")
MEMORY: Final = f"{GROUP}/gpu-memory"
MEMORY_MIB: Final = "gpu-memory"
DEVICES: Final = (f"{GROUP}/gpu-devices", "gpu-fraction-num-devices")
_SUFFIX_OF_MIB: Final = "Mi"
_MOST_DEVICES: Final = 64


@dataclass(frozen=True, slots=True)
class Share:
    """A part of each of ``devices`` GPUs: thousandths of it, or MiB of its memory."""

    milli: int = 0
    memory_mib: int = 0
    devices: int = 1


def share_of(annotations: Mapping[str, str]) -> Share | None:
    """The share that a pod asks for; ``None`` without one.

    Raises:
        PodRefused: the annotations mean nothing, or both a part and an amount of memory.
    """
    if not annotations:
        return None
    part, part_key = _first(annotations, SHARE)
    memory = _memory(annotations)
    count, count_key = _first(annotations, DEVICES)
    if part and memory:
        raise PodRefused("two_shares", part_key, part, "left out, or the GPU memory left out")
    if not part and not memory:
        return None
    devices = _devices(count, count_key) if count else 1
    if memory:
        return Share(memory_mib=memory, devices=devices)
    return Share(milli=_milli(part, part_key), devices=devices)


def not_offered(annotations: Mapping[str, str]) -> PodRefused:
    """That nothing on a cluster's nodes gives a container a part of a GPU."""
    asked = (*SHARE, MEMORY, MEMORY_MIB)
    key = next((one for one in asked if annotations.get(one)), SHARE[0])
    expected = (
        "left out: shares of a GPU are not offered on a cluster; whole GPUs, or MIG instances by "
        "the name that a node offers them by, are right"
    )
    return PodRefused("gpu_shares", key, annotations.get(key, ""), expected)


def _first(annotations: Mapping[str, str], keys: tuple[str, ...]) -> tuple[str, str]:
    return next(((annotations[key], key) for key in keys if key in annotations), ("", keys[0]))


def _milli(written: str, key: str) -> int:
    expected = "a part of a GPU above 0 and below 1, such as 0.5"
    try:
        part = Decimal(written)
    except InvalidOperation as error:
        raise PodRefused("bad_share", key, written, expected) from error
    if not part.is_finite() or not 0 < part < 1:
        raise PodRefused("bad_share", key, written, expected)
    return min(MILLI - 1, int((part * MILLI).to_integral_value(ROUND_CEILING)))


def _memory(annotations: Mapping[str, str]) -> int:
    """MiB; 0 where none is asked for."""
    key = MEMORY if MEMORY in annotations else MEMORY_MIB
    written = annotations.get(key, "")
    if not written:
        return 0
    if key == MEMORY_MIB and written.isdecimal():
        written += _SUFFIX_OF_MIB
    mib = -(-pieces(nanos(written, key)) // MIB)
    if mib <= 0:
        raise PodRefused("bad_share", key, written, "an amount of memory such as 10Gi")
    return mib


def _devices(written: str, key: str) -> int:
    if not written.isdecimal() or not 1 <= int(written) <= _MOST_DEVICES:
        raise PodRefused("bad_share", key, written, f"a number from 1 to {_MOST_DEVICES}")
    return int(written)
