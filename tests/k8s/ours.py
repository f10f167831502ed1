"""Carrel's kinds on the cluster of the tests, a client of it, and ``kubectl``."""

import json
import subprocess
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.credentials import from_kubeconfig
from carrel_scheduler.kube.resources import Resource
from carrel_scheduler.ledger.resources import kinds
from k8s import access
from k8s.cluster import binaries, pods
from k8s.cluster.control_plane import ControlPlane, Refused

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy" / "kubernetes"
CRDS: Final = DEPLOY / "crds"
TIMEOUT_SECONDS: Final = 180.0
MARKS: Final = [pytest.mark.enable_socket, pytest.mark.slow]
_APPLIED: Final[set[tuple[str, Path]]] = set()
"""What was applied to which clusters: each module that takes a fixture from here has its own."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The result of a program."""

    code: int
    out: str
    error: str


class Kubectl:
    """The cluster's own ``kubectl``, as the admin or as somebody else."""

    def __init__(self, program: Path, kubeconfig: Path) -> None:
        self._command = [str(program), f"--kubeconfig={kubeconfig}"]

    def run(self, *words: str, given: str = "") -> CommandResult:
        """Run it and tell what it said."""
        done = subprocess.run(
            [*self._command, *words],
            input=given,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS * 2,
            check=False,
        )
        return CommandResult(done.returncode, done.stdout, done.stderr)

    def __call__(self, *words: str, given: str = "") -> str:
        """Run it and return what it prints; a failure is one of the test."""
        told = self.run(*words, given=given)
        assert told.code == 0, told.error
        return told.out

    def apply(self, *manifests: Mapping[str, Any], words: tuple[str, ...] = ()) -> CommandResult:
        """``kubectl apply`` of manifests."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        return self.run("apply", *words, "-f", "-", given=text)


class ApiUser:
    """Requests as a user, with results as of ``kubectl``; dry runs unless ``kept``."""

    def __init__(
        self, plane: ControlPlane, user: str = "", groups: Sequence[str] = (), *, kept: bool = False
    ) -> None:
        self._plane, self._user, self._groups = plane, user, groups
        self._how = "fieldValidation=Strict" + ("" if kept else "&dryRun=All")

    def create(self, manifest: Mapping[str, Any]) -> CommandResult:
        """Make an object."""
        return self._ask("POST", access.place(manifest), manifest)

    def patch(
        self, what: Resource, name: str, body: Mapping[str, Any], namespace: str = "", sub: str = ""
    ) -> CommandResult:
        """Change an object, or a part of it, by what is to be merged."""
        return self._ask("PATCH", what.path(namespace, name, sub), body)

    def delete(self, what: Resource, name: str, namespace: str = "") -> CommandResult:
        """Delete an object."""
        return self._ask("DELETE", what.path(namespace, name))

    def get(self, what: Resource, namespace: str = "", name: str = "") -> CommandResult:
        """Read an object, or all."""
        return self._ask("GET", what.path(namespace, name))

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> CommandResult:
        way = path if method == "GET" else f"{path}?{self._how}"
        try:
            told = self._plane.ask(method, way, body, user=self._user, groups=self._groups)
        except Refused as refused:
            said = json.loads(refused.text) if refused.text.startswith("{") else {}
            words = f"{said.get('reason')}: {said.get('message', refused.text)}"
            return CommandResult(refused.status, "", words)
        return CommandResult(0, json.dumps(told), "")


@pytest.fixture(scope="session")
def kubectl(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    """``kubectl`` as the admin."""
    program = binaries.control_plane(print)["kubectl"]
    return Kubectl(program, plane.kubeconfig(tmp_path_factory.mktemp("kubectl") / "admin.json"))


@pytest.fixture(scope="session")
def ours(plane: ControlPlane, kubectl: Kubectl) -> ControlPlane:
    """A cluster that knows our kinds."""
    install_kinds(plane, kubectl)
    return plane


@pytest.fixture(scope="session")
def installed(ours: ControlPlane, kubectl: Kubectl) -> ControlPlane:
    """A cluster with the whole installation, but for what runs in it."""
    install(ours, kubectl)
    return ours


def install(plane: ControlPlane, kubectl: Kubectl) -> None:
    """Have a cluster have the whole installation, which no test takes away."""
    if (plane.url, DEPLOY) not in _APPLIED:
        kubectl("apply", "--server-side", "--force-conflicts", "-k", str(DEPLOY))
        _APPLIED.add((plane.url, DEPLOY))


def install_kinds(plane: ControlPlane, kubectl: Kubectl) -> None:
    """Have a cluster know our kinds, which no test takes away."""
    if (plane.url, CRDS) in _APPLIED:
        return
    kubectl("apply", "--server-side", "-k", str(CRDS))
    # `kubectl wait` gives up on a definition of which the server has said nothing yet.
    for named in kinds.ALL:
        pods.until(partial(_serves, plane, named.resource))
    _APPLIED.add((plane.url, CRDS))


def _serves(plane: ControlPlane, resource: Resource) -> bool:
    """Whether objects of a kind can be asked for, and programs find out that they can."""
    plane.get(resource.path())
    told = plane.get(f"/apis/{resource.api_version}")["resources"]
    return any(one["name"] == resource.plural for one in told)


@pytest.fixture
async def client(plane: ControlPlane, tmp_path: Path) -> AsyncIterator[KubeClient]:
    """A client of the product, as the admin."""
    made = KubeClient(from_kubeconfig(plane.kubeconfig(tmp_path / "kubeconfig.json")))
    yield made
    await made.close()


@pytest.fixture(scope="module")
def trial(ours: ControlPlane) -> ApiUser:
    """The admin, whose requests keep nothing."""
    return ApiUser(ours)


def make_namespace(plane: ControlPlane, name: str, **labels: str) -> None:
    """A namespace, unless it is there."""
    try:
        body = {"metadata": {"name": name, "labels": labels}}
        plane.ask("POST", "/api/v1/namespaces", body)
    except Refused as refused:
        if refused.status != 409:
            raise


def until(found: Any, what: str, seconds: float = TIMEOUT_SECONDS) -> Any:
    """The result of ``found`` once there is one; a failure after a while."""
    deadline = time.monotonic() + seconds
    while True:
        answer = found()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"no {what} after {seconds:g} s"
        time.sleep(0.1)
