"""Putting the objects of other schedulers' users on a cluster, as their controllers make them.

Manifests stand beside this file. References to owners name them only; their uids are filled in. A
``List`` has what its items share under ``all``; ``Labels`` are put on pods that Kubernetes made,
and open their gates.
"""

import copy
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from k8s.cluster.control_plane import ControlPlane, Refused

FOLDER: Final = Path(__file__).parent
TIMEOUT_SECONDS: Final = 120.0
KINDS: Final = {
    "batch.volcano.sh/v1alpha1/Job": "jobs",
    "scheduling.volcano.sh/v1beta1/PodGroup": "podgroups",
    "scheduling.x-k8s.io/v1alpha1/PodGroup": "podgroups",
    "kubeflow.org/v1/PyTorchJob": "pytorchjobs",
    "kubeflow.org/v2beta1/MPIJob": "mpijobs",
    "trainer.kubeflow.org/v1alpha1/TrainJob": "trainjobs",
    "jobset.x-k8s.io/v1alpha2/JobSet": "jobsets",
    "ray.io/v1/RayJob": "rayjobs",
    "ray.io/v1/RayCluster": "rayclusters",
    "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet": "leaderworkersets",
}
"""Kinds of peers that a cluster does not have by itself."""
BUILT_IN: Final = {
    "v1/Pod": "pods",
    "batch/v1/Job": "jobs",
    "apps/v1/StatefulSet": "statefulsets",
    "apps/v1/Deployment": "deployments",
    "scheduling.k8s.io/v1beta1/PodGroup": "podgroups",
}


def define(plane: ControlPlane) -> None:
    """Have the API server know the peers' kinds, with an open schema."""
    for name, plural in KINDS.items():
        group, version, kind = name.split("/")
        try:
            plane.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                      _definition(group, version, kind, plural))  # fmt: skip
        except Refused as refused:
            if refused.status != 409:
                raise
    for name, plural in KINDS.items():
        until(partial(_serves, plane, f"/apis/{name.rpartition('/')[0]}", plural))


def _definition(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "metadata": {
            "name": f"{plural}.{group}",
            # Groups of Kubernetes' own community ask for this; any text will do.
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def _serves(plane: ControlPlane, path: str, plural: str) -> bool:
    try:
        return any(one["name"] == plural for one in plane.get(path)["resources"])
    except Refused:
        return False


class Space:
    """A namespace with the objects of one peer; made if it is not there.

    Attributes:
        changed: texts in manifests, and what stands in their place here.
        own_when_bound: a pod gets the objects that it owns once it has a node, not at once.
    """

    def __init__(
        self,
        plane: ControlPlane,
        name: str,
        changed: Mapping[str, str] | None = None,
        *,
        own_when_bound: bool = False,
    ) -> None:
        self.plane = plane
        self.name = name
        self.changed = dict(changed or {})
        self.own_when_bound = own_when_bound
        self._uids: dict[tuple[str, str], str] = {}
        try:
            plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        except Refused as refused:
            if refused.status != 409:
                raise
        until(lambda: self._found("serviceaccounts", "default"))

    def apply(self, file: str) -> None:
        """Create what a manifest says, in its order."""
        text = (FOLDER / file).read_text()
        for old, new in self.changed.items():
            text = text.replace(old, new)
        for document in yaml.safe_load_all(text):
            if document["kind"] == "Labels":
                for one in document["items"]:
                    self._label(one["name"], one["labels"])
                continue
            for one in _objects(document):
                self._create(one)

    def pods(self) -> list[dict[str, Any]]:
        """The pods of the namespace."""
        found: list[dict[str, Any]] = self.plane.get(self._path("pods"))["items"]
        return found

    def unsuspend(self, job: str) -> None:
        """Let a Job begin."""
        path = f"/apis/batch/v1/namespaces/{self.name}/jobs/{job}"
        self.plane.ask("PATCH", path, {"spec": {"suspend": False}})

    def remove(self, kind: str, name: str) -> None:
        """Have an object deleted, and all that it owns; nobody waits for that."""
        path = self._path((KINDS | BUILT_IN)[kind], kind.rpartition("/")[0])
        self.plane.ask("DELETE", f"{path}/{name}", {"propagationPolicy": "Foreground"})

    def end(self) -> None:
        """Have everything in it deleted; nobody waits for that."""
        self.plane.ask("DELETE", f"/api/v1/namespaces/{self.name}")

    def _create(self, one: dict[str, Any]) -> None:
        kind = f"{one['apiVersion']}/{one['kind']}"
        for owner in one["metadata"].get("ownerReferences", ()):
            owner["uid"] = self._uid(owner)
        made = self.plane.ask("POST", self._path((KINDS | BUILT_IN)[kind], one["apiVersion"]), one)
        self._uids[one["kind"], one["metadata"]["name"]] = made["metadata"]["uid"]

    def _uid(self, owner: Mapping[str, Any]) -> str:
        key = (owner["kind"], owner["name"])
        if key not in self._uids:  # a pod that Kubernetes is to make
            found = until(lambda: self._owner_pod(owner["name"]))
            self._uids[key] = found["metadata"]["uid"]
        return self._uids[key]

    def _owner_pod(self, name: str) -> Any:
        found = self._found("pods", name)
        if self.own_when_bound and found and not found["spec"].get("nodeName"):
            return None
        return found

    def _label(self, name: str, labels: Mapping[str, str]) -> None:
        until(lambda: self._found("pods", name))
        change = {"metadata": {"labels": labels}, "spec": {"schedulingGates": None}}
        self.plane.ask("PATCH", f"{self._path('pods')}/{name}", change)

    def _found(self, plural: str, name: str) -> Any:
        try:
            return self.plane.get(f"{self._path(plural)}/{name}")
        except Refused:
            return None

    def _path(self, plural: str, api: str = "v1") -> str:
        root = "/api/v1" if api == "v1" else f"/apis/{api}"
        return f"{root}/namespaces/{self.name}/{plural}"


def _objects(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if not document["kind"].endswith("List"):
        yield document
        return
    for item in document["items"]:
        one = _merged(document["all"], item)
        yield {**one, "apiVersion": document["apiVersion"], "kind": document["kind"][:-4]}


def _merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(copy.deepcopy(base))
    for key, value in more.items():
        both = isinstance(value, Mapping) and isinstance(found.get(key), Mapping)
        found[key] = _merged(found[key], value) if both else copy.deepcopy(value)
    return found


def until(ask: Callable[[], Any]) -> Any:
    """The result of ``ask`` once there is one."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not (found := ask()):
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.1)
    return found
