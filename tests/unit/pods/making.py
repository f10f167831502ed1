"""Objects of Kubernetes as tests write them down: by what matters, the rest as usual."""

from typing import Any

import msgspec

from carrel_scheduler.engines.kubernetes.pods.types import Node, Pod


def container(*, requests: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"name": "main", "resources": {"requests": requests or {}}, **more}


def pod(
    name: str = "p",
    *,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: dict[str, Any] | None = None,
    node: str = "",
    phase: str = "Pending",
    deleted: bool = False,
    **spec: Any,
) -> Pod:
    """A pod; ``spec`` in the words of its manifest."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": f"{namespace}/{name}",
        "labels": labels or {},
        "annotations": annotations or {},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    if owner is not None:
        meta["ownerReferences"] = [{**owner, "controller": True}]
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    said = {"containers": [container()], **spec}
    if node:
        said["nodeName"] = node
    return msgspec.convert({"metadata": meta, "spec": said, "status": {"phase": phase}}, type=Pod)


def node(
    name: str = "n",
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    allocatable: dict[str, str] | None = None,
    capacity: dict[str, str] | None = None,
    taints: list[dict[str, str]] | None = None,
    ready: str = "True",
    unschedulable: bool = False,
) -> Node:
    """A node that is ready."""
    offered = allocatable or {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "uid": name,
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
                "annotations": annotations or {},
            },
            "spec": {"taints": taints or [], "unschedulable": unschedulable},
            "status": {
                "allocatable": offered,
                "capacity": capacity or offered,
                "conditions": [{"type": "Ready", "status": ready}],
            },
        },
        type=Node,
    )
