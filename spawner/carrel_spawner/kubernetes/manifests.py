"""Manifests of a workspace's pod and of what it needs: labels, volumes, secret. Pure.

What the scheduler counted is what the container gets, whatever profiles and overrides say of
resources; what gives access stands in a secret, which fewer people may read than the pod.
"""

import base64
import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from carrel_schema import shared_gpus
from carrel_schema.names import (
    ATTEMPT,
    KIND,
    PROJECT,
    SCHEDULER_NAME,
    TASK,
    TASK_INDEX,
    USER,
    WORKLOAD,
    WORKLOAD_UID,
    label,
)
from carrel_spawner.options import WorkspaceChoice
from carrel_spawner.workspace import Address, split_secrets

CONTAINER: Final = "notebook"


def task_id(address: Address) -> str:
    """The id of the task that a workspace is; it has only one."""
    return f"{address.uid}-0-{address.attempt}"


def pod_labels(address: Address, user: str) -> dict[str, str]:
    """The labels by which the scheduler and admins find a workspace's pod."""
    return {
        PROJECT: label(address.project),
        WORKLOAD: label(address.name),
        WORKLOAD_UID: label(address.uid),
        TASK: task_id(address),
        TASK_INDEX: "0",
        ATTEMPT: str(address.attempt),
        USER: label(user),
        KIND: "workspace",
    }


def name_suffix(address: Address) -> str:
    """The end of a pod's name, so that each start has a name of its own, found again."""
    return hashlib.sha256(task_id(address).encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class WorkspaceStorage:
    """A volume that is claimed where it is missing and never deleted.

    Attributes:
        capacity: as Kubernetes writes it, ``100Gi``.
        storage_class: empty: the cluster's usual one.
    """

    name: str
    capacity: str
    storage_class: str
    access_modes: Sequence[str]


def volume_claim(storage: WorkspaceStorage, labels: Mapping[str, str]) -> dict[str, Any]:
    """The manifest of a volume's claim."""
    spec: dict[str, Any] = {
        "accessModes": list(storage.access_modes),
        "resources": {"requests": {"storage": storage.capacity}},
    }
    if storage.storage_class:
        spec["storageClassName"] = storage.storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": storage.name, "labels": dict(labels)},
        "spec": spec,
    }


def volumes_for_jobs(
    places: Mapping[str, tuple[str, Sequence[str]]], *, beside: bool = False
) -> str:
    """The volumes of a workspace that its jobs may mount, too.

    Args:
        places: claim and access modes, by where the workspace has it.
        beside: also those that a single node may use: such jobs run on the workspace's node.
    """
    enough = {"ReadWriteMany", "ReadWriteOnce"} if beside else {"ReadWriteMany"}
    seen = [
        {"source": name, "destination": where}
        for where, (name, modes) in places.items()
        if enough.intersection(modes)
    ]
    return json.dumps(seen)


def owned_by_pod(manifest: Mapping[str, Any], pod: str, uid: str) -> dict[str, Any]:
    """The manifest of an object that is deleted with the pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def secret_manifest(
    name: str, environment: Mapping[str, object], labels: Mapping[str, str]
) -> dict[str, Any]:
    """The manifest of the secret for sensitive variables."""
    _, hidden = split_secrets(environment)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name, "labels": dict(labels)},
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in hidden.items()},
    }


@dataclass(frozen=True, slots=True)
class PodAdditions:
    """Additions to the pod of KubeSpawner.

    Attributes:
        gpu_resource: what the cluster calls a GPU, such as ``nvidia.com/gpu``.
        grace_seconds: how long it has for saving its work.
        secret: name of the secret with the rest of its environment.
        image: of the environment asset; empty: KubeSpawner's.
        environment: variables of the environment asset.
        limiter: init container of a workspace with a share of a GPU; ``None``: it is not limited.
        made_instance: it has a MIG instance, which its binding names.
        instance: the resource of its MIG instance, where its node offers that by name; else empty.
    """

    labels: Mapping[str, str]
    choice: WorkspaceChoice
    gpu_resource: str
    grace_seconds: float
    secret: str
    image: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    limiter: dict[str, Any] | None = None
    made_instance: bool = False
    instance: str = ""

    @property
    def shares_gpu(self) -> bool:
        """Whether it has a share of a GPU: a pod of the scheduler holds the GPU."""
        return 0 < self.choice.gpus < 1


def complete_pod(pod: Any, additions: PodAdditions) -> Any:
    """The pod, changed in place. Raises ``ValueError`` when it has no such container."""
    pod.metadata.labels = {**(pod.metadata.labels or {}), **additions.labels}
    spec = pod.spec
    spec.scheduler_name = SCHEDULER_NAME
    spec.restart_policy = "Never"
    spec.termination_grace_period_seconds = max(1, round(additions.grace_seconds))
    spec.enable_service_links = False
    container = next((one for one in spec.containers if one.name == CONTAINER), None)
    if container is None:
        raise ValueError(f"the pod has no container {CONTAINER!r}, in which a workspace runs")
    container.image = additions.image or container.image
    container.resources = _resources(container.resources, additions)
    container.env = [*_shown(container.env or [], hidden=OF_GPUS), *_of_gpus(additions)]
    container.env += [{"name": name, "value": text} for name, text in additions.environment.items()]
    if additions.shares_gpu and additions.limiter is not None:
        spec.init_containers = [*(spec.init_containers or []), additions.limiter]
        spec.volumes = [*(spec.volumes or []), shared_gpus.volume()]
        container.volume_mounts = [*(container.volume_mounts or []), *shared_gpus.mounts()]
    container.env_from = [
        *(container.env_from or []),
        {"secretRef": {"name": additions.secret}},
    ]
    return pod


def _resources(given: Any, additions: PodAdditions) -> dict[str, dict[str, str]]:
    """The place's size. Memory is a limit, too; idle processors may be used beyond the share."""
    choice = additions.choice
    requests = dict((given and given.requests) or {})
    limits = dict((given and given.limits) or {})
    requests |= {"cpu": f"{choice.cpu_millicores}m", "memory": str(choice.memory_bytes)}
    limits |= {"memory": str(choice.memory_bytes)}
    for amounts in (requests, limits):
        amounts.pop(additions.gpu_resource, None)
        if choice.gpus >= 1:
            amounts[additions.gpu_resource] = str(round(choice.gpus))
        if additions.shares_gpu:
            amounts.update(shared_gpus.AMOUNT)
        if additions.instance:
            amounts[additions.instance] = "1"
    return {"requests": requests, "limits": limits}


OF_GPUS: Final = (shared_gpus.VISIBLE, shared_gpus.MEMORY, shared_gpus.SHARE)
"""Variables about GPUs: none of them is taken from elsewhere."""


def _of_gpus(additions: PodAdditions) -> list[dict[str, Any]]:
    """Variables of the pod's GPUs: none, those of the device plugin or of its binding."""
    if additions.shares_gpu:
        share = {"name": shared_gpus.SHARE, "value": f"{additions.choice.gpus:g}"}
        return [*shared_gpus.variables(), share]
    if additions.made_instance:
        return shared_gpus.visible()
    has_gpus = additions.choice.gpus or additions.instance
    return [] if has_gpus else [{"name": shared_gpus.VISIBLE, "value": "void"}]


def _shown(variables: list[Any], *, hidden: Collection[str]) -> list[Any]:
    """Variables that the pod may contain: references, and values that are no secrets."""
    variables = [one for one in variables if one.name not in hidden]
    shown, _ = split_secrets({one.name: one.value for one in variables if one.value is not None})
    return [one for one in variables if one.value is None or one.name in shown]
