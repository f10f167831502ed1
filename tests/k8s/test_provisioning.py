"""Requests for nodes on a real API server that has their kind; the test is the autoscaler.

The definition of the kind has the fields and bounds of the Cluster Autoscaler's own. No autoscaler
runs here: what one would do is written into the status, and nodes are made.
"""

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from carrel_scheduler.engines.kubernetes.provisioning.types import (
    POD_TEMPLATES,
    PROVISIONING_REQUESTS,
    ProvisioningSettings,
)
from k8s.cluster.control_plane import ControlPlane
from k8s.ours import DEPLOY, ApiUser, Kubectl, kubectl, make_namespace, until
from k8s.scheduling import ONLY, Site, comes_to_be, running, site

__all__ = ["kubectl"]
pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
CLASS: Final = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
SETTINGS: Final = ProvisioningSettings(CLASS, {"ValidUntilSeconds": "600"}, delay_s=0.0)
NAME: Final = {
    "type": "string",
    "maxLength": 253,
    "pattern": r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
}
KEPT: Final = [{"rule": "self == oldSelf", "message": "Value is immutable"}]
REFERENCE: Final = {"type": "object", "required": ["name"], "properties": {"name": NAME}}
SET: Final = {
    "type": "object",
    "required": ["count", "podTemplateRef"],
    "properties": {
        "count": {"type": "integer", "format": "int32", "minimum": 1},
        "podTemplateRef": REFERENCE,
    },
}
PARAMETERS: Final = {
    "type": "object",
    "maxProperties": 100,
    "additionalProperties": {"type": "string", "maxLength": 255},
    "x-kubernetes-validations": KEPT,
}
SPEC: Final = {
    "type": "object",
    "required": ["podSets", "provisioningClassName"],
    "properties": {
        "podSets": {
            "type": "array",
            "minItems": 1,
            "maxItems": 32,
            "items": SET,
            "x-kubernetes-validations": KEPT,
        },
        "provisioningClassName": {**NAME, "x-kubernetes-validations": KEPT},
        "parameters": PARAMETERS,
    },
}
STATUS: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@pytest.fixture(scope="module")
def kind(plane: ControlPlane, kubectl: Kubectl) -> Iterator[Kubectl]:
    """The kind of the autoscaler."""
    resource = PROVISIONING_REQUESTS
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {"spec": SPEC, "status": STATUS},
    }
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    named = {"kind": resource.kind, "plural": resource.plural, "listKind": f"{resource.kind}List"}
    approved = "https://github.com/kubernetes/autoscaler/pull/5848"
    body = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "annotations": {"api-approved.kubernetes.io": approved},
        },
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {**named, "singular": resource.kind.lower()},
            "versions": [version],
        },
    }
    plane.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
    until(lambda: ApiUser(plane).get(resource).code == 0, "the kind")
    yield kubectl
    kubectl("delete", "crd", f"{resource.plural}.{resource.group}")


@pytest.fixture
async def here(plane: ControlPlane, kind: Kubectl, tmp_path: Path) -> AsyncIterator[Site]:
    """One node with two GPUs, and a project that may have eight."""
    async with site(plane.kubeconfig(tmp_path / "kubeconfig"), tmp_path) as made:
        await made.add_nodes(1, gpus=2)
        await made.add_project("a", 8)
        yield made


async def requests(here: Site) -> dict[str, dict[str, Any]]:
    found = await here.client.list(PROVISIONING_REQUESTS, namespace=here.namespace("a"))
    return {one["metadata"]["name"]: one for one in found.items}


async def templates(here: Site) -> list[dict[str, Any]]:
    return (await here.client.list(POD_TEMPLATES, namespace=here.namespace("a"))).items


async def answer(here: Site, kind: str, message: str = "") -> None:
    """The autoscaler sets a condition of the one request."""
    [name] = await requests(here)
    at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": kind, "status": "True", "reason": "Test", "message": message}
    condition["lastTransitionTime"] = at
    body = {"status": {"conditions": [condition]}}
    await here.client.patch(PROVISIONING_REQUESTS, name, body, here.namespace("a"), sub="status")


def told(here: Site, name: str) -> tuple[str, str]:
    """Reason and message of the condition of a pod."""
    pod = here.of("a").get(name)
    conditions = () if pod is None else pod.status.conditions
    return next(((one.reason, one.message) for one in conditions), ("", ""))


async def test_a_pod_that_fits_no_node_gets_one(here: Site) -> None:
    async with running(here.scheduler(provisioning=SETTINGS)):
        await here.add_pod("a", "large", gpus=4)

        async def asked() -> bool:
            return len(await requests(here)) == 1 and len(await templates(here)) == 1

        await comes_to_be(asked)
        [request], [template] = (await requests(here)).values(), await templates(here)
        assert request["spec"]["provisioningClassName"] == CLASS
        assert request["spec"]["parameters"] == {"ValidUntilSeconds": "600"}
        reference = {"name": template["metadata"]["name"]}
        assert request["spec"]["podSets"] == [{"podTemplateRef": reference, "count": 1}]
        [owner] = template["metadata"]["ownerReferences"]
        assert owner["uid"] == request["metadata"]["uid"]
        spec = template["template"]["spec"]
        assert spec["nodeSelector"] == {ONLY: here.name}
        assert spec["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "4"}
        await here.until(
            lambda: told(here, "large")[1].startswith("Waiting for nodes: they are asked for"),
            "what it waits for",
        )
        assert told(here, "large")[0] == "WaitsForNodes"
        await answer(here, "Accepted", "3 nodes of pool x")
        await here.until(lambda: "3 nodes of pool x" in told(here, "large")[1], "the answer")
        await here.add_node(f"{here.name}-new", gpus=4)
        await here.until(lambda: "large" in here.bound("a"), "the pod on the new node")

        async def gone() -> bool:
            return not await requests(here) and not await templates(here)

        await comes_to_be(gone)


async def test_a_request_is_found_again_and_goes_with_its_pod(here: Site) -> None:
    async with running(here.scheduler(provisioning=SETTINGS)):
        await here.add_pod("a", "large", gpus=4)

        async def asked() -> bool:
            return len(await templates(here)) == 1

        await comes_to_be(asked)
    first = await requests(here)
    async with running(here.scheduler("two", provisioning=SETTINGS)):
        await here.until(lambda: told(here, "large")[0] == "WaitsForNodes", "why it waits")
        assert (await requests(here)).keys() == first.keys()
        pod = here.of("a")["large"]
        await here.finish(pod)

        async def gone() -> bool:
            return not await requests(here)

        await comes_to_be(gone)


@pytest.fixture
def rights(plane: ControlPlane, kind: Kubectl) -> Iterator[None]:
    """The rights of the component, which other tests do not expect."""
    make_namespace(plane, "carrel-system")
    make_namespace(plane, "scaled")
    manifest = str(DEPLOY / "components" / "autoscaling" / "rights.yaml")
    kind("apply", "--server-side", "-f", manifest)
    yield
    kind("delete", "-f", manifest)


@pytest.mark.usefixtures("rights")
def test_the_scheduler_makes_and_deletes_only_what_has_its_mark(plane: ControlPlane) -> None:
    scheduler = ApiUser(plane, "system:serviceaccount:carrel-system:carrel-scheduler")

    def body(name: str, mark: str, space: str = "scaled") -> dict[str, Any]:
        sets = [{"podTemplateRef": {"name": name}, "count": 1}]
        return {
            "apiVersion": PROVISIONING_REQUESTS.api_version,
            "kind": PROVISIONING_REQUESTS.kind,
            "metadata": {
                "name": name,
                "namespace": space,
                "labels": {"carrel.dev/made-by": mark},
            },
            "spec": {"provisioningClassName": CLASS, "podSets": sets},
        }

    def made(name: str, mark: str, space: str = "scaled") -> str:
        return scheduler.create(body(name, mark, space)).error

    until(lambda: not made("ours", "carrel"), "the rights", 60.0)
    until(lambda: "have its mark" in made("theirs", "others"), "the policy", 60.0)
    assert "none runs in namespaces" in made("ours", "carrel", "carrel-system")
    requests = PROVISIONING_REQUESTS
    plane.ask("POST", requests.path("scaled"), body("theirs", "others"))
    refused = scheduler.delete(requests, "theirs", "scaled")
    assert "have its mark" in refused.error
