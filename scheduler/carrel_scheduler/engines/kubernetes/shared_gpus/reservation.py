"""A reservation: the pod that holds a shared GPU of a node, made from its place and read back.

Pure. The kubelet chooses which GPU a pod gets, by number. So a pod of ours asks for one GPU, and
keeps it for as long as others share it. Its name is made from the node and the place at which the
core counts the GPU: two schedulers make the same pod, and the second one finds it there.

An init container says which GPU it is, in the message of its end, which is a part of the pod's
status: `nvidia-smi` where NVIDIA's runtime brings it, else the variable that the device plugin
sets. The kubelet gives the container after it the same GPU. That one only waits, and as the first
process of its container it does not hear SIGTERM: a reservation that somebody deletes keeps its GPU
for as long as the pods that share it take to end.

The pod asks for no CPU and no memory, so that a full node takes it.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from carrel_scheduler.core.devices.shares import memory_of_share
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from carrel_schema.names import (
    EPOCH,
    GPU_INDEX,
    GPU_MEMORY_MIB,
    GPU_RESERVATIONS,
    GPU_UUIDS,
    MADE_BY,
    MADE_BY_US,
    MIG_SLOTS,
    RESERVATIONS_NAMESPACE,
    SCHEDULER_NAME,
)
from carrel_schema.shared_gpus import VISIBLE

GPU: Final = "nvidia.com/gpu"
PLACED_BY: Final = "carrel-gpu-reservations"
"""The ``schedulerName`` of reservation pods: no scheduler has it; they are bound by name."""
FINDS: Final = "find-gpu"
GRACE_SECONDS: Final = 600
"""Seconds for which a reservation that somebody deletes keeps its GPU, at most."""
SCRIPT: Final = f"""\
nvidia-smi --query-gpu=uuid,memory.total --format=csv,noheader,nounits 2>/dev/null \\
  > /dev/termination-log || printf '%s' "${VISIBLE}" > /dev/termination-log
"""
_FOUND: Final = re.compile(
    r"(?P<uuid>GPU-[0-9A-Za-z-]{1,60})(, ((?P<mib>[0-9]{1,9})|\[.{1,20}\]))?"
)
_MOST_DIGITS: Final = 19


@dataclass(frozen=True, slots=True)
class ReservationSettings:
    """Settings of reservation pods.

    Attributes:
        image: of their containers: one with ``/bin/sh`` and ``sleep``.
        pull_policy: of it; empty: Kubernetes' own choice.
        pull_secrets: names of secrets in their namespace that it is pulled with.
        seconds: for which the start of a pod waits for its GPUs.
    """

    image: str
    pull_policy: str = ""
    pull_secrets: tuple[str, ...] = ()
    seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class HeldGpu:
    """A GPU that a reservation holds.

    Attributes:
        reservation: uid of the pod that holds it.
        uuid: as the driver names it.
        memory_mib: of all of it; 0 where nobody knows.
    """

    reservation: str
    uuid: str
    memory_mib: int


def name_of(node: str, index: int) -> str:
    """The name of the reservation pod for a device of a node."""
    return f"gpu-{index}-{key_of_node(node)}"


@lru_cache(maxsize=16_384)
def key_of_node(node: str) -> str:
    """The suffix of the names of a node's reservation pods."""
    return hashlib.sha256(node.encode()).hexdigest()[:20]


def node_key(pod: Pod) -> str:
    """The key of the node that a reservation is made for, be it bound or not."""
    return pod.metadata.name.rpartition("-")[2]


def manifest(node: str, index: int, settings: ReservationSettings) -> dict[str, Any]:
    """The reservation pod, which is bound to its node afterwards."""
    policy = {"imagePullPolicy": settings.pull_policy} if settings.pull_policy else {}
    utility = [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"}]
    container = {
        "image": settings.image,
        **policy,
        "env": utility,
        "resources": {
            "requests": {"cpu": "0", "memory": "0", GPU: "1"},
            "limits": {"memory": "128Mi", GPU: "1"},
        },
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_of(node, index),
            "namespace": RESERVATIONS_NAMESPACE,
            "labels": {GPU_INDEX: str(index), MADE_BY: MADE_BY_US},
        },
        "spec": {
            "schedulerName": PLACED_BY,
            "priorityClassName": "system-node-critical",
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": GRACE_SECONDS,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "runAsGroup": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "tolerations": [{"operator": "Exists"}],
            "imagePullSecrets": [{"name": name} for name in settings.pull_secrets],
            "initContainers": [{"name": FINDS, "command": ["/bin/sh", "-c", SCRIPT], **container}],
            "containers": [{"name": "holds-gpu", "command": ["sleep", "infinity"], **container}],
        },
    }


def is_leaving(pod: Pod) -> bool:
    """Whether the GPU of a reservation belongs, or soon may belong, to another pod."""
    return pod.ended or pod.metadata.deletion_timestamp is not None


def epoch_of(pod: Pod) -> int:
    """The turn of the scheduler that last answered for a reservation; -1: nobody did."""
    written = pod.metadata.annotations.get(EPOCH, "")
    return int(written) if written.isdecimal() and len(written) < _MOST_DIGITS else -1


def refusal_of(pod: Pod) -> str:
    """The reason why the node did not admit a reservation pod; empty if it did."""
    if not pod.ended or pod.metadata.deletion_timestamp is not None:
        return ""
    return f"{pod.status.reason or 'it ended'}: {pod.status.message or 'nobody says why'}"


def message_of(pod: Pod) -> str | None:
    """The result of the init container; ``None`` until it has ended."""
    for status in pod.status.init_container_statuses:
        if status.name == FINDS and status.state.terminated is not None:
            return status.state.terminated.message
    return None


def waits_for(pod: Pod) -> str:
    """The reason why the reservation pod has not started, as reported by its node."""
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in ("", "PodInitializing"):
            return f"{waiting.reason} {waiting.message}".strip()
    return "its node has not begun it"


def gpu_of(pod: Pod) -> HeldGpu | str | None:
    """The GPU that a reservation holds; a sentence where it is none to share; ``None``: not yet."""
    said = message_of(pod)
    if said is None:
        return None
    known = _FOUND.fullmatch(said.strip())
    if known is None:
        return (
            f"the node gave {said.strip()[:80]!r} to the pod that holds the GPU: one whole GPU of "
            "NVIDIA, named by its device plugin, is right"
        )
    return HeldGpu(pod.metadata.uid, known["uuid"], int(known["mib"] or 0))


def binding_annotations(
    gpus: Sequence[HeldGpu], share_milli: int, asked_mib: int
) -> Mapping[str, str]:
    """The annotations that tell a pod at its binding which GPUs it shares, and how much of them.

    Args:
        gpus: that it shares.
        share_milli: the pod's share of each, in thousandths.
        asked_mib: the memory that it asked for; 0: it asked for the share.
    """
    smallest = min((gpu.memory_mib for gpu in gpus), default=0)
    own = memory_of_share(share_milli, asked_mib, smallest)
    return {
        GPU_UUIDS: ",".join(gpu.uuid for gpu in gpus),
        GPU_RESERVATIONS: ",".join(gpu.reservation for gpu in gpus),
        **({GPU_MEMORY_MIB: str(own)} if own else {}),
    }


def instance_annotations(gpu: HeldGpu, uuid: str, slots: int = 0) -> Mapping[str, str]:
    """The annotations that tell a pod at its binding which MIG instance of a held GPU it has.

    ``slots`` are those of an external pod's, of which the binding is the only record.
    """
    place = {MIG_SLOTS: str(slots)} if slots else {}
    return {GPU_UUIDS: uuid, GPU_RESERVATIONS: gpu.reservation, **place}


def visible_of(pod: Pod) -> frozenset[str]:
    """UUIDs of the GPUs, or of the MIG instance, that a pod was told to see."""
    return frozenset(one for one in pod.metadata.annotations.get(GPU_UUIDS, "").split(",") if one)


def reservations_of(pod: Pod) -> frozenset[str]:
    """Uids of the reservations whose GPUs a bound pod uses, for as long as it has not ended.

    Of pods that others place anybody could write what they like.
    """
    if pod.ended or not pod.spec.node_name or pod.spec.scheduler_name != SCHEDULER_NAME:
        return frozenset()
    written = pod.metadata.annotations.get(GPU_RESERVATIONS, "")
    return frozenset(uid for uid in written.split(",") if uid)
