"""Claims of a test's site for devices of a class that has its name, and the pods that use them."""

from collections.abc import Callable
from typing import Any, Final

from carrel_scheduler.engines.kubernetes.pods.devices.types import RESOURCE_CLAIMS
from k8s.scheduling import Site

DRIVER: Final = "gpu.nvidia.com"


def device_class(name: str, kind: str = "gpu") -> dict[str, Any]:
    """A class of the driver's devices of a kind."""
    expression = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "{kind}"'
    return {
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def asked(here: Site, count: int = 1) -> dict[str, Any]:
    """The specification of a claim for so many devices."""
    exactly = {"deviceClassName": here.name, "count": count}
    return {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}


async def add_pod(here: Site, word: str, name: str, **use: str) -> None:
    """A pod that uses a claim, by its name or by that of a template."""
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": {"cpu": "1"}, "claims": [{"name": "gpu"}]},
    }
    await here.add_pod(word, name, containers=[container], resourceClaims=[{"name": "gpu", **use}])


async def claims(here: Site, word: str) -> dict[str, dict[str, Any]]:
    """The claims of a project, by name."""
    found = (await here.client.list(RESOURCE_CLAIMS, namespace=here.namespace(word))).items
    return {one["metadata"]["name"]: one for one in found}


def told(here: Site, word: str, name: str, text: str) -> Callable[[], bool]:
    """Whether a pod has been told this."""

    def found() -> bool:
        pod = here.of(word).get(name)
        return pod is not None and any(text in one.message for one in pod.status.conditions)

    return found
