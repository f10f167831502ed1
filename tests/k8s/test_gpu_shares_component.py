"""Pods with a share of a GPU on an API server that has the component: the annotation is enough."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from carrel_schema import shared_gpus
from carrel_schema.names import MIG_PROFILE
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import DEPLOY, MARKS, ApiUser, Kubectl, kubectl, make_namespace, until

__all__ = ["kubectl"]
pytestmark = MARKS
COMPONENT = DEPLOY / "components" / "gpu-shares" / "policy.yaml"


@pytest.fixture(scope="module")
def component(plane: ControlPlane, kubectl: Kubectl) -> ApiUser:
    make_namespace(plane, "carrel-system")
    make_namespace(plane, "shares", **{"pod-security.kubernetes.io/enforce": "restricted"})
    kubectl("apply", "--server-side", "-f", str(COMPONENT))
    trial = ApiUser(plane)
    until(lambda: "carrel-gpu" in json.dumps(made(trial, a_pod())), "the policy is in force")
    return trial


def a_pod(container: Mapping[str, Any] = MappingProxyType({}), name: str = "") -> dict[str, Any]:
    """One with a share; ``name`` is the container that it names for it."""
    named = {"gpu-fraction-container-name": name} if name else {}
    secure = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    first = {"name": "main", "image": "none", "securityContext": secure, **container}
    second = {"name": "beside", "image": "none", "securityContext": secure}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "small",
            "namespace": "shares",
            "annotations": {"gpu-fraction": "0.5", **named},
        },
        "spec": {
            "schedulerName": "carrel",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 1000,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [first, second],
        },
    }


def made(trial: ApiUser, pod: dict[str, Any]) -> dict[str, Any]:
    """The specification of the pod as the server would keep it."""
    told = trial.create(pod)
    assert told.code == 0, told.error
    return dict(json.loads(told.out)["spec"])


def within(wanted: Any, found: Any) -> bool:
    """Whether everything that is wanted was found; the server adds its own."""
    if isinstance(wanted, dict):
        return all(key in found and within(value, found[key]) for key, value in wanted.items())
    if isinstance(wanted, list):
        return all(any(within(one, other) for other in found) for one in wanted)
    return bool(wanted == found)


def test_it_adds_what_our_own_pods_have(component: ApiUser) -> None:
    spec = made(component, a_pod())
    main, beside = spec["containers"]
    assert within(shared_gpus.variables(), main["env"])
    assert within(shared_gpus.mounts(), main["volumeMounts"])
    assert "env" not in beside
    assert within([shared_gpus.volume()], spec["volumes"])
    (limiter,) = spec["initContainers"]
    assert within(shared_gpus.limiter("carrel/trainer"), limiter)


def test_another_container_may_be_named(component: ApiUser) -> None:
    spec = made(component, a_pod(name="beside"))
    main, beside = spec["containers"]
    assert "env" not in main
    assert within(shared_gpus.variables(), beside["env"])


def test_what_is_said_already_and_who_asks_for_no_share_stay_as_they_are(
    component: ApiUser,
) -> None:
    own = made(component, a_pod({"env": shared_gpus.variables()}))
    assert "initContainers" not in own
    none = a_pod()
    none["metadata"]["annotations"] = {"note": "no share"}
    assert "initContainers" not in made(component, none)
    elsewhere = a_pod()
    elsewhere["spec"]["schedulerName"] = "default-scheduler"
    assert "initContainers" not in made(component, elsewhere)


@pytest.mark.parametrize("asks", [{MIG_PROFILE: "3g.40gb"}, {"nvidia.com/mig-3g.40gb": "1"}])
def test_who_asks_for_an_instance_is_told_which_one_and_has_no_limiter(
    component: ApiUser, asks: dict[str, str]
) -> None:
    one = a_pod()
    one["metadata"]["annotations"] = asks
    spec = made(component, one)
    assert within(shared_gpus.visible(), spec["containers"][0]["env"])
    assert "env" not in spec["containers"][1]
    assert "initContainers" not in spec
    assert shared_gpus.VOLUME not in json.dumps(spec)
    own = a_pod({"resources": {"limits": {"nvidia.com/mig-3g.40gb": "1"}}})
    own["metadata"]["annotations"] = {"nvidia.com/mig-3g.40gb": "1"}
    assert "env" not in made(component, own)["containers"][0], "the device plugin gives that one"


def test_the_component_goes_with_the_installation(kubectl: Kubectl, tmp_path: Path) -> None:
    base = Path(os.path.relpath(DEPLOY, tmp_path.resolve()))
    image = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "carrel-gpu-shares", "namespace": "carrel-system"},
        "data": {"image": "registry.example.org/trainer:1"},
    }
    overlay = {
        "resources": [f"{base}"],
        "components": [f"{base}/components/gpu-shares"],
        "patches": [{"patch": json.dumps(image)}],
    }
    (tmp_path / "kustomization.yaml").write_text(json.dumps(overlay))
    text = kubectl("kustomize", str(tmp_path.resolve()))
    kinds = [one["kind"] for one in yaml.load_all(text, yaml.CSafeLoader)]
    assert kinds.count("MutatingAdmissionPolicy") == 2
    assert "image: registry.example.org/trainer:1" in text
