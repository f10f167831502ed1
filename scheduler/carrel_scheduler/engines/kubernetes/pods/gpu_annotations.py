"""Parts of GPUs that a pod asks for by annotations: no resource of Kubernetes is a part of a GPU.

| ours | elsewhere | means |
|---|---|---|
| ``carrel.dev/gpu-share: "0.5"`` | ``gpu-fraction`` | that part of a GPU, above 0 and below 1 |
| ``carrel.dev/gpu-memory: 10Gi`` | ``gpu-memory: "10240"`` (MiB) | that much memory of a GPU |
| ``carrel.dev/gpu-devices: "2"`` | ``gpu-fraction-num-devices`` | so many GPUs of one node |
| ``carrel.dev/mig-profile: 3g.40gb`` | ``nvidia.com/mig-3g.40gb: "1"`` | a MIG instance |
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from typing import Final

from carrel_scheduler.core.mig import is_profile
from carrel_scheduler.core.mig.models import EXPECTED
from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.engines.kubernetes.pods.quantities import PodRefused, nanos, pieces
from carrel_scheduler.engines.mig_resources import profile_of
from carrel_schema.names import GROUP, MIG_PREFIX, MIG_PROFILE

GPU_SHARE: Final = (f"{GROUP}/gpu-share", "gpu-fraction")
GPU_MEMORY: Final = f"{GROUP}/gpu-memory"
GPU_MEMORY_MIB: Final = "gpu-memory"
GPU_DEVICES: Final = (f"{GROUP}/gpu-devices", "gpu-fraction-num-devices")
_SUFFIX_OF_MIB: Final = "Mi"
_MOST_SHARED: Final = 64
_PARTS: Final = (*GPU_SHARE, GPU_MEMORY, GPU_MEMORY_MIB)


@dataclass(frozen=True, slots=True)
class Share:
    """A part of each of ``devices`` GPUs: thousandths of it, or MiB of its memory."""

    milli: int = 0
    memory_mib: int = 0
    devices: int = 1


def share_of(annotations: Mapping[str, str]) -> Share | None:
    """The shared GPU request of a pod; ``None`` without one.

    Raises:
        PodRefused: the annotations mean nothing, or both a part and an amount of memory.
    """
    if not annotations:
        return None
    part, part_key = _first_annotation(annotations, GPU_SHARE)
    memory = _share_memory_mib(annotations)
    count, count_key = _first_annotation(annotations, GPU_DEVICES)
    if part and memory:
        raise PodRefused("two_shares", part_key, part, "left out, or the GPU memory left out")
    if not part and not memory:
        return None
    devices = _share_devices(count, count_key) if count else 1
    if memory:
        return Share(memory_mib=memory, devices=devices)
    return Share(milli=_share_milli(part, part_key), devices=devices)


def _first_annotation(annotations: Mapping[str, str], keys: tuple[str, ...]) -> tuple[str, str]:
    return next(((annotations[key], key) for key in keys if key in annotations), ("", keys[0]))


def _share_milli(written: str, key: str) -> int:
    expected = "a part of a GPU above 0 and below 1, such as 0.5"
    try:
        part = Decimal(written)
    except InvalidOperation as error:
        raise PodRefused("bad_share", key, written, expected) from error
    if not part.is_finite() or not 0 < part < 1:
        raise PodRefused("bad_share", key, written, expected)
    return min(MILLI - 1, int((part * MILLI).to_integral_value(ROUND_CEILING)))


def _share_memory_mib(annotations: Mapping[str, str]) -> int:
    """MiB of GPU memory; 0 without a request."""
    key = GPU_MEMORY if GPU_MEMORY in annotations else GPU_MEMORY_MIB
    written = annotations.get(key, "")
    if not written:
        return 0
    if key == GPU_MEMORY_MIB and written.isdecimal():
        written += _SUFFIX_OF_MIB
    mib = -(-pieces(nanos(written, key)) // MIB)
    if mib <= 0:
        raise PodRefused("bad_share", key, written, "an amount of memory such as 10Gi")
    return mib


def _share_devices(written: str, key: str) -> int:
    if not written.isdecimal() or not 1 <= int(written) <= _MOST_SHARED:
        raise PodRefused("bad_share", key, written, f"a number from 1 to {_MOST_SHARED}")
    return int(written)


def mig_profile_of(annotations: Mapping[str, str], resources: Collection[str] = ()) -> str:
    """The profile of the MIG instance that annotations ask for; empty without one.

    Args:
        annotations: of the pod.
        resources: names of those that its containers ask for. Where instances are among them a
            node's own are given, and the annotation that others use for the same says nothing.

    Raises:
        PodRefused: what is written is no profile, or asked for beside another part of a GPU.
    """
    if not annotations:
        return ""
    own = next((name for name in resources if name.startswith(MIG_PREFIX)), "")
    if MIG_PROFILE in annotations:
        key, found = MIG_PROFILE, profile_of(annotations[MIG_PROFILE])
        if not is_profile(annotations[MIG_PROFILE]):
            raise PodRefused("bad_mig_profile", key, annotations[key], EXPECTED)
        if own:
            expected = f"left out where `{own}` is asked for: that is an instance of the node's own"
            raise PodRefused("two_instances", key, annotations[key], expected)
    else:
        key = "" if own else _instance_elsewhere(annotations)
        if not key:
            return ""
        found = profile_of(key.removeprefix(MIG_PREFIX))
    part = next((name for name in _PARTS if annotations.get(name)), "")
    if part:
        expected = f"left out where a MIG instance is asked for (`{key}`)"
        raise PodRefused("mig_and_share", part, annotations[part], expected)
    return found


def _instance_elsewhere(annotations: Mapping[str, str]) -> str:
    """The annotation by which others ask for an instance; its name has the profile."""
    keys = sorted(
        key
        for key in annotations
        if key.startswith(MIG_PREFIX) and is_profile(key.removeprefix(MIG_PREFIX))
    )
    if len(keys) > 1:
        expected = f"left out beside `{keys[0]}`: a pod has one MIG instance"
        raise PodRefused("two_instances", keys[1], annotations[keys[1]], expected)
    if keys and annotations[keys[0]] != "1":
        expected = "1: a pod has one MIG instance"
        raise PodRefused("bad_mig_profile", keys[0], annotations[keys[0]], expected)
    return keys[0] if keys else ""
