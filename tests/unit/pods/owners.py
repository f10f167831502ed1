"""Objects that own pods, and the workloads that pods are grouped into."""

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from carrel_scheduler.engines.kubernetes.pods.grouping import Grouper, OwnerReader
from carrel_scheduler.engines.kubernetes.pods.labels import Grouped
from carrel_scheduler.engines.kubernetes.pods.types import Owned, Owner, Pod
from unit.pods.making import pod

PROJECTS = ("vision", "speech")


class Known:
    def __init__(self, namespaces: Mapping[str, str]) -> None:
        self.namespaces = namespaces

    def known(self, name: str) -> bool:
        return name in PROJECTS

    def of_namespace(self, namespace: str) -> str:
        return self.namespaces.get(namespace, "")


class World:
    """Objects that own pods, by name."""

    def __init__(self, **namespaces: str) -> None:
        self.objects: dict[str, Owned] = {}
        self.asked: list[str] = []
        self.now = 100.0
        self.down = False
        self.grouper = Grouper(OwnerReader(self.get, now=lambda: self.now), Known(namespaces))

    async def get(self, owner: Owner, namespace: str) -> Owned | None:
        self.asked.append(owner.name)
        await asyncio.sleep(0)
        if self.down:
            raise ConnectionError
        return self.objects.get(owner.name)

    def add(
        self,
        api: str,
        name: str,
        spec: dict[str, Any] | None = None,
        *,
        owner: dict[str, Any] | None = None,
        **meta: Any,
    ) -> dict[str, Any]:
        """An object; returns the reference to it."""
        version, _, kind = api.rpartition("/")
        about = {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
        if owner is not None:
            about["ownerReferences"] = [{**owner, "controller": True}]  # type: ignore[assignment]
        self.objects[name] = msgspec.convert(
            {
                "apiVersion": version,
                "kind": kind,
                "metadata": {**about, **meta},
                "spec": spec or {},
            },
            type=Owned,
        )
        return {"apiVersion": version, "kind": kind, "name": name, "uid": f"uid-{name}"}

    def group(self, of: Pod) -> Grouped:
        return asyncio.run(self.grouper.group(of))


def roles(found: Grouped) -> dict[str, int]:
    return {role.name: role.least for role in found.grouping.roles}


PYTORCH = {
    "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 3}},
}


def pytorch_pod(owner: dict[str, Any], role: str) -> Pod:
    return pod(role, owner=owner, labels={"training.kubeflow.org/replica-type": role})
