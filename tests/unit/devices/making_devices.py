"""Devices, classes and claims as tests write them down."""

from typing import Any

import msgspec

from carrel_scheduler.engines.kubernetes.pods.devices.types import (
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
)
from carrel_scheduler.engines.kubernetes.pods.types import Pod
from unit.pods.making import pod

DRIVER = "gpu.nvidia.com"
NIC = "nic.example.com"


def device(name: str, model: str = "A100", memory: str = "80Gi", **more: Any) -> dict[str, Any]:
    """A GPU, as its driver describes it."""
    return {
        "name": name,
        "attributes": {
            "type": {"string": "gpu"},
            "productName": {"string": f"NVIDIA {model}"},
            "driverVersion": {"version": "550.54.15"},
            "index": {"int": int(name[-1])},
            "healthy": {"bool": True},
            "resource.kubernetes.io/pcieRoot": {"string": f"root-{int(name[-1]) // 2}"},
        },
        "capacity": {"memory": {"value": memory}},
        **more,
    }


def device_slice(
    node: str, *devices: dict[str, Any], driver: str = DRIVER, name: str = "", **pool: int
) -> ResourceSlice:
    told = {
        "metadata": {"name": name or f"{node}-{driver}"},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {
                "name": node,
                "generation": pool.get("generation", 1),
                "resourceSliceCount": pool.get("of", 1),
            },
            "devices": list(devices),
        },
    }
    return msgspec.convert(told, ResourceSlice)


def gpus(node: str, count: int, **more: Any) -> ResourceSlice:
    return device_slice(node, *(device(f"gpu-{number}", **more) for number in range(count)))


def device_class(name: str = DRIVER, driver: str = DRIVER, **spec: Any) -> DeviceClass:
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}]
    told = {"metadata": {"name": name}, "spec": {"selectors": selectors, **spec}}
    return msgspec.convert(told, DeviceClass)


def cel(expression: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": expression}}]


def request(name: str = "gpu", **exactly: Any) -> dict[str, Any]:
    return {"name": name, "exactly": {"deviceClassName": DRIVER, "count": 1, **exactly}}


def claim(
    name: str = "c",
    *requests: dict[str, Any],
    namespace: str = "carrel-a",
    given: tuple[str, ...] = (),
    node: str = "n0",
    users: tuple[str, ...] = (),
    owner: str = "",
    deleted: bool = False,
    version: str = "1",
    **devices: Any,
) -> ResourceClaim:
    """A claim for one GPU unless said otherwise; ``given`` are names of its devices on ``node``."""
    meta: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "resourceVersion": version,
    }
    if owner:
        pod_of = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner}
        meta["ownerReferences"] = [{**pod_of, "controller": True}]
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    status: dict[str, Any] = {
        "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in users]
    }
    if given:
        results = [
            {"request": "gpu", "driver": DRIVER, "pool": node, "device": one} for one in given
        ]
        status["allocation"] = {"devices": {"results": results}}
    told = {
        "metadata": meta,
        "spec": {"devices": {"requests": list(requests) or [request()], **devices}},
        "status": status,
    }
    return msgspec.convert(told, ResourceClaim)


def claiming(name: str, *claims: str, **spec: Any) -> Pod:
    """A pod that uses claims by their names."""
    uses = [{"name": one, "resourceClaimName": one} for one in claims]
    return pod(name, namespace="carrel-a", resourceClaims=uses, **spec)
