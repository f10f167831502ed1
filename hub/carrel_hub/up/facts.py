"""What is said about the machine once it runs: its GPUs, and under whose account work runs."""

import os
import pwd
from collections.abc import Sequence

from carrel.models import Node


def total_gpus(nodes: Sequence[Node]) -> float:
    """GPUs of all nodes."""
    return sum(node.gpu_milli for node in nodes) / 1000


def gpu_line(nodes: Sequence[Node]) -> str:
    """``4 simulated GPUs (A10, 24 GiB each)``; simulated or real is always said."""
    devices = [device for node in nodes for device in node.devices]
    if not devices:
        return "none"
    count = len(devices)
    simulated = all(device.simulated for device in devices)
    kind = "simulated GPU" if simulated else "GPU"
    line = f"{count} {kind}{'s' if count != 1 else ''}"
    models = sorted({_model(device.name, device.memory_mib) for device in devices})
    each = " each" if count > 1 and len(models) == 1 else ""
    return f"{line} ({'; '.join(models)}{each})"


def account_line(*, privileged: bool | None = None, account: str | None = None) -> str:
    """Whether users are kept apart on this machine."""
    if os.geteuid() == 0 if privileged is None else privileged:
        return "each user's work runs under an account of that user's own, never as root"
    name = account or pwd.getpwuid(os.geteuid()).pw_name
    return (
        f"all work runs as {name}, so users can read each other's files; run as root to part them"
    )


def _model(name: str, memory_mib: int) -> str:
    memory = f"{memory_mib / 1024:.0f} GiB" if memory_mib else ""
    return ", ".join(part for part in (name, memory) if part)
