"""Pods in tests: made, waited for, asked, deleted."""

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from k8s.cluster.plane import ControlPlane, Refused

TIMEOUT_SECONDS: Final = 300.0
_PAUSE_SECONDS: Final = 0.1
RESTRICTED: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
"""What the pod security standard `restricted` asks of a container."""


def make(
    plane: ControlPlane,
    name: str,
    image: str,
    arguments: Sequence[str] = (),
    **specification: Any,
) -> None:
    """Make a pod of one container.

    Args:
        plane: where.
        name: of the pod and of its container.
        image: loaded already; it is never pulled.
        arguments: of the image's entry point.
        specification: fields of the pod's specification, such as ``nodeName``; ``container`` has
            fields of its container, ``labels`` of its metadata.
    """
    namespace = specification.pop("namespace", "default")
    container = {
        "name": name,
        "image": image,
        "imagePullPolicy": "Never",
        "args": list(arguments),
        **specification.pop("container", {}),
    }
    pod = {
        "metadata": {"name": name, "labels": specification.pop("labels", {})},
        "spec": {"restartPolicy": "Never", "containers": [container], **specification},
    }
    until(lambda: plane.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default"))
    plane.ask("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


def get(plane: ControlPlane, name: str, namespace: str = "default") -> Any:
    """The pod as the API server has it. Raises ``Refused``."""
    return plane.get(f"/api/v1/namespaces/{namespace}/pods/{name}")


def wait(plane: ControlPlane, name: str, *phases: str, namespace: str = "default") -> Any:
    """The pod once it has come to one of the phases, by default ``Running`` and ready."""

    def arrived() -> Any:
        pod = get(plane, name, namespace)
        if phases:
            return pod if pod["status"]["phase"] in phases else None
        conditions = pod["status"].get("conditions", [])
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
        return pod if ready else None

    return until(arrived, lambda: str(get(plane, name, namespace)["status"]))


def log(plane: ControlPlane, name: str, namespace: str = "default") -> str:
    """The log of a pod's container."""
    told = plane.get(f"/api/v1/namespaces/{namespace}/pods/{name}/log")
    return str(told)


def delete(
    plane: ControlPlane, name: str, grace_seconds: int = 0, namespace: str = "default"
) -> None:
    """Delete it and wait until it is gone."""
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    plane.ask("DELETE", path, {"gracePeriodSeconds": grace_seconds})
    until(lambda: _is_gone(plane, name, namespace))


def execute(kubectl: Path, kubeconfig: Path, name: str, *command: str) -> str:
    """The output of a command in a pod's container."""
    words = [str(kubectl), f"--kubeconfig={kubeconfig}", "exec", name, "--", *command]
    done = subprocess.run(
        words, check=True, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    return done.stdout


def until(holds: Callable[[], Any], described: Callable[[], str] = str) -> Any:
    """Ask until there is an answer; refusals are asked again."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            if answer := holds():
                return answer
        except (Refused, OSError) as failed:
            if time.monotonic() > deadline:
                raise TimeoutError(str(failed)) from failed
        if time.monotonic() > deadline:
            raise TimeoutError(described())
        time.sleep(_PAUSE_SECONDS)


def _is_gone(plane: ControlPlane, name: str, namespace: str) -> bool:
    try:
        get(plane, name, namespace)
    except Refused as refused:
        return refused.status == HTTPStatus.NOT_FOUND
    return False
