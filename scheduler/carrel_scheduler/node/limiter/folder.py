"""The files that the limiter of a task reads and writes, and what they tell about it.

`limits` says how much a task may hold of each GPU; only the engine can write it. `usage` is what
its processes hold: they write it, so it is read with suspicion and never mapped. The layout is that
of `source/usage.h`.
"""

import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

MIB: Final = 1024 * 1024
GPUS: Final = 16
FOLDER: Final = "/dev/carrel-gpu"
"""The folder in which a task finds the files; also written into the library."""
USAGE_BYTES: Final = 384 + 512 * (8 + 8 * GPUS)
_USED_AT: Final = 128
_OVERHEAD_AT: Final = _USED_AT + 8 * GPUS


def limits_text(limits_mib: Mapping[str, int]) -> str:
    """The content of `limits`: MiB of each GPU by its UUID. Raises `ValueError`."""
    if len(limits_mib) > GPUS:
        raise ValueError(f"limits of {len(limits_mib)} GPUs: at most {GPUS} are right")
    for uuid, mib in limits_mib.items():
        if not uuid or len(uuid) > 63 or any(letter.isspace() for letter in uuid) or mib < 0:
            raise ValueError(f"limit {uuid!r}: {mib}: the UUID of a GPU and MiB from 0 are right")
    return "".join(f"{uuid} {mib * MIB}\n" for uuid, mib in limits_mib.items())


def prepare_usage(path: Path, owner: tuple[int, int] | None) -> None:
    """Make an empty `usage` file.

    Args:
        path: where nothing is yet.
        owner: (uid, gid) of the task's processes; `None` for our own.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, USAGE_BYTES)
        if owner is not None:
            os.fchown(descriptor, *owner)
    finally:
        os.close(descriptor)


def read_usage(path: Path) -> Sequence[int]:
    """MiB that the processes of a task say they hold, in the order of `limits`; empty when unknown.

    The task can write anything there: it is for showing, and no decision may rest on it.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ()
    try:
        data = os.pread(descriptor, 8 * GPUS, _USED_AT)
    finally:
        os.close(descriptor)
    return (
        [used // MIB for used in struct.unpack(f"{GPUS}Q", data)] if len(data) == 8 * GPUS else ()
    )


def write_overhead(path: Path, overhead_mib: Sequence[int]) -> None:
    """Tell the limiter what the driver holds besides allocations, in the order of `limits`."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        data = struct.pack(f"{len(overhead_mib)}Q", *(mib * MIB for mib in overhead_mib))
        os.pwrite(descriptor, data, _OVERHEAD_AT)
    finally:
        os.close(descriptor)
