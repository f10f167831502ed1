"""What a workspace's pod needs beside it: the project's volume, and its secret. Pure."""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from carrel_spawner.environment import split


@dataclass(frozen=True, slots=True)
class Storage:
    """A volume that is claimed where it is missing and never deleted.

    Attributes:
        capacity: as Kubernetes writes it, ``100Gi``.
        storage_class: empty: the cluster's usual one.
    """

    name: str
    capacity: str
    storage_class: str
    access_modes: Sequence[str]


def claim(storage: Storage, labels: Mapping[str, str]) -> dict[str, Any]:
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


def for_jobs(places: Mapping[str, tuple[str, Sequence[str]]], *, beside: bool = False) -> str:
    """What a workspace tells of those of its volumes that jobs may see, too.

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


def owned(manifest: Mapping[str, Any], pod: str, uid: str) -> dict[str, Any]:
    """The manifest of what goes with a pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}


def secret(
    name: str, environment: Mapping[str, object], labels: Mapping[str, str]
) -> dict[str, Any]:
    """The manifest with those variables that open a door."""
    _, hidden = split(environment)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {"name": name, "labels": dict(labels)},
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in hidden.items()},
    }
