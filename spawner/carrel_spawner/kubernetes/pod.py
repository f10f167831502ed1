"""The manifest that KubeSpawner makes, as Carrel needs it. Pure.

What the scheduler counted is what the container gets, whatever profiles and overrides say of
resources; what opens a door stands in a secret, which fewer people may read than the pod.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from carrel_schema.names import SCHEDULER_NAME
from carrel_spawner.environment import split
from carrel_spawner.options import Choice

CONTAINER: Final = "notebook"


@dataclass(frozen=True, slots=True)
class Furnishing:
    """What a pod is to have beyond KubeSpawner's.

    Attributes:
        gpu_resource: what the cluster calls a GPU, such as ``nvidia.com/gpu``.
        grace_seconds: how long it has for saving its work.
        secret: name of the secret with the rest of its environment.
    """

    labels: Mapping[str, str]
    choice: Choice
    gpu_resource: str
    grace_seconds: float
    secret: str


def furnish(pod: Any, furnishing: Furnishing) -> Any:
    """The pod, changed in place. Raises ``ValueError`` when it has no such container."""
    pod.metadata.labels = {**(pod.metadata.labels or {}), **furnishing.labels}
    spec = pod.spec
    spec.scheduler_name = SCHEDULER_NAME
    spec.restart_policy = "Never"
    spec.termination_grace_period_seconds = max(1, round(furnishing.grace_seconds))
    spec.enable_service_links = False
    container = next((one for one in spec.containers if one.name == CONTAINER), None)
    if container is None:
        raise ValueError(f"the pod has no container {CONTAINER!r}, in which a workspace runs")
    container.resources = _resources(container.resources, furnishing)
    container.env = _shown(container.env or [])
    container.env_from = [
        *(container.env_from or []),
        {"secretRef": {"name": furnishing.secret}},
    ]
    return pod


def _resources(given: Any, furnishing: Furnishing) -> dict[str, dict[str, str]]:
    """The place's size. Memory is a limit, too; idle processors may be used beyond the share."""
    choice = furnishing.choice
    requests = dict((given and given.requests) or {})
    limits = dict((given and given.limits) or {})
    requests |= {"cpu": f"{choice.cpu_millicores}m", "memory": str(choice.memory_bytes)}
    limits |= {"memory": str(choice.memory_bytes)}
    for amounts in (requests, limits):
        amounts.pop(furnishing.gpu_resource, None)
        if choice.gpus:
            amounts[furnishing.gpu_resource] = str(choice.gpus)
    return {"requests": requests, "limits": limits}


def _shown(variables: list[Any]) -> list[Any]:
    """Variables that may stand in the pod: those by reference, and those that open no door."""
    shown, _ = split({one.name: one.value for one in variables if one.value is not None})
    return [one for one in variables if one.value is None or one.name in shown]
