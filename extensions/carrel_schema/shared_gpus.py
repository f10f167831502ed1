"""Parts of a pod with a share of a GPU, for the engine, the Hub, and the admission of others.

It asks for no GPU: a pod of the scheduler holds the GPU, or a claim for a part of it, and this pod
is told which one that is when it is bound. The binding writes annotations, and variables of the
container read them, so no pod has a GPU before it has its place, and none chooses one.

An init container prepares the limiter of GPU memory in a volume. The container sees what it may not
change read-only: its limit, the library, and the list of libraries that every program loads.

This module imports nothing but names, so that a Hub and a policy take the same from it.
"""

from typing import Any, Final

from carrel_schema.names import GPU_MEMORY_MIB, GPU_UUIDS, GROUP

VISIBLE: Final = "NVIDIA_VISIBLE_DEVICES"
MEMORY: Final = "CARREL_GPU_MEMORY_MIB"
SHARE: Final = "CARREL_GPU_SHARE"
FROM_BINDING: Final = {VISIBLE: GPU_UUIDS, MEMORY: GPU_MEMORY_MIB}
"""Variables of a container, by the annotation that says them."""

RESOURCE: Final = f"{GROUP}/gpu-share"
"""The resource that its container requests: no node offers it; the kubelet admits the pod.

Where a driver of dynamic resource allocation offers the GPUs, the claim that is made for the pod
serves the container by this name.
"""
AMOUNT: Final = {RESOURCE: "1"}

VOLUME: Final = "carrel-gpu"
LIMITER: Final = "carrel-gpu-limiter"
"""The init container."""
INSTALLED: Final = "/carrel/gpu"
"""The path of the volume in the init container."""
INSTALL: Final = ("python3", "-m", "carrel_scheduler.node.limiter.install", INSTALLED)
FOLDER: Final = "/dev/carrel-gpu"
LIBRARY: Final = "libcarrel_gpu_limit.so"
MOUNTS: Final = (
    ("limits", f"{FOLDER}/limits", True),
    ("usage", f"{FOLDER}/usage", False),
    (LIBRARY, f"{FOLDER}/{LIBRARY}", True),
    ("preload", "/etc/ld.so.preload", True),
)
"""Files of the volume, where the container sees them, and whether it may only read them."""


def variables() -> list[dict[str, Any]]:
    """``env`` entries of the container that has the share."""
    return [_from_annotation(name, key) for name, key in FROM_BINDING.items()]


def visible() -> list[dict[str, Any]]:
    """``env`` entries of the container that has a MIG instance, whose memory is its own."""
    return [_from_annotation(VISIBLE, GPU_UUIDS)]


def volume() -> dict[str, Any]:
    """The volume of the limiter's files."""
    return {"name": VOLUME, "emptyDir": {"sizeLimit": "16Mi"}}


def mounts() -> list[dict[str, Any]]:
    """The mounts of the container with the share."""
    return [
        {
            "name": VOLUME,
            "mountPath": path,
            "subPath": file,
            **({"readOnly": True} if fixed else {}),
        }
        for file, path, fixed in MOUNTS
    ]


def limiter(image: str, pull_policy: str = "") -> dict[str, Any]:
    """The init container; ``image`` has Carrel in it."""
    return {
        "name": LIMITER,
        "image": image,
        **({"imagePullPolicy": pull_policy} if pull_policy else {}),
        "command": list(INSTALL),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": [
            {"name": VISIBLE, "value": "void"},
            _from_annotation("CARREL_GPU_UUIDS", GPU_UUIDS),
            _from_annotation(MEMORY, GPU_MEMORY_MIB),
        ],
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"memory": "128Mi"},
        },
        "volumeMounts": [{"name": VOLUME, "mountPath": INSTALLED}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _from_annotation(name: str, key: str) -> dict[str, Any]:
    where = {"fieldRef": {"fieldPath": f"metadata.annotations['{key}']"}}
    return {"name": name, "valueFrom": where}
