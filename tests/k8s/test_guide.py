"""docs/kubernetes.md, followed from its first command to its last, on a real kubelet.

Hub, proxy, console, gateway and scheduler run as pods of the installation, with its rights and
under the pod security standard `restricted`. The tests build on each other, in order.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from playwright.sync_api import Error, Page

from carrel_hub.kubernetes.settings import ClusterHubSettings
from e2e.stack import People, people
from k8s import guide
from k8s.cluster import pods, usual
from k8s.cluster.loading import Images
from k8s.cluster.node import Node
from k8s.cluster.plane import ControlPlane, Refused
from k8s.cluster.records import Record
from k8s.cluster.waiting import NotReady

pytestmark = [
    pytest.mark.enable_socket,
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.browser,
    pytest.mark.timeout(900),
]
SECTION: Final = "From an empty cluster to a workspace"
TEN_MINUTES: Final = 600.0
ANSWER_MS: Final = 30_000
SYSTEM: Final = "carrel-system"
VISION: Final = "carrel-vision"
PARTS: Final = "app.kubernetes.io%2Fpart-of%3Dcarrel"
APPS: Final = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments"
CLAIMS: Final = (
    *((SYSTEM, f"carrel-{part}") for part in ("hub", "scheduler")),
    *((VISION, claim) for claim in ("home-ada", "project", "carrel-checkpoints")),
)
PROJECT: Final = "/apis/carrel.dev/v1alpha1/projects/vision"
DIGITS: Final = f"/apis/carrel.dev/v1alpha1/namespaces/{VISION}/trainings/digits"
REGISTRY: Final = "registry.example.org/carrel"
ACCOUNTS: Final = {
    "carrel-hub": "carrel-hub",
    "carrel-scheduler": "carrel-scheduler",
    "carrel-proxy": "default",
    "carrel-console": "default",
    "carrel-gateway": "default",
}
"""Who the parts are for the API server; ``default`` has no rights, and no token is mounted."""


class Follower:
    """Somebody who follows the guide."""

    def __init__(self, node: Node, shell: guide.GuideShell, images: Images) -> None:
        self.node, self.plane, self.shell, self.images = node, node.plane, shell, images
        self.said: dict[str, str] = {}
        self.passwords: dict[str, str] = {}
        self.shots = shell.folder

    @property
    def url(self) -> str:
        """Where the browser looks for the Hub."""
        return self.shell.url

    def follow(self, command: guide.Command) -> None:
        """Do what the guide says."""
        if command.remark == guide.REGISTRY:
            for folder, name in guide.images(command.text):
                self.load(folder, name)
        elif command.remark == guide.GOES_ON:
            self.shell.forward(command.text)
        elif command.remark == guide.INSIDE:
            pod = self.workspace()["metadata"]["name"]
            inside = f"kubectl -n {VISION} exec {pod} -- {command.text}"
            self.said[command.text] = self.shell.run(inside)
        else:
            assert not command.remark
            self.said[command.text] = self.shell.run(command.text)
        if "carrel user add" in command.text:
            name, password = self.said[command.text].split()[:2]
            self.passwords[name] = password

    def listed(self, command: str) -> str:
        """The only line of a list that is about the guide's project; others are of other tests."""
        (line,) = [one for one in self.said[command].splitlines() if one.startswith(VISION)]
        return line

    def lists(self, command: str, word: str) -> bool:
        """Whether a list says something of the guide's project now."""
        self.said[command] = self.shell.run(command)
        return word in self.listed(command)

    def status(self, page: Page) -> Any:
        """What ada's workspace says of itself; nothing while it cannot be reached."""
        try:
            answer = page.request.get(f"{self.url}/user/ada/api/status", timeout=ANSWER_MS)
        except Error:  # the pod is gone that was forwarded to
            (again,) = [one for one in guide.commands(SECTION) if one.remark == guide.GOES_ON]
            with suppress(NotReady):  # nor is another one there yet
                self.follow(again)
            return None
        is_json = answer.headers.get("content-type", "").startswith("application/json")
        return answer.json() if answer.ok and is_json else None

    def load(self, folder: str, name: str) -> None:
        """What building and pushing come to, without Docker and without a registry."""
        image = self.images.on(self.node, folder)
        self.node.runtime.ask("images", "tag", "--force", image.name, name)

    def workspace(self) -> Any:
        """The only pod of a workspace."""
        (one,) = self.found(VISION, "carrel.dev%2Fkind%3Dworkspace")
        return one

    def found(self, namespace: str, selector: str) -> list[Any]:
        """Pods of a namespace."""
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}"
        listed: list[Any] = self.plane.get(path)["items"]
        return listed


@pytest.fixture(scope="module")
def follower(
    node: Node,
    record: Record,
    images: Images,
    kubectl: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Follower]:
    folder = tmp_path_factory.mktemp("guide")
    before = _policies(node.plane)
    with ExitStack() as around:
        around.callback(_take_away, node.plane, before)
        around.enter_context(usual.alone(node))
        around.enter_context(usual.gpus(node, 2))
        around.enter_context(usual.scheduler(node.plane, record))
        around.enter_context(usual.volumes(node.plane, folder / "volumes", CLAIMS))
        shell = guide.GuideShell(folder / "root", node.plane, kubectl)
        around.callback(shell.stop)
        yield Follower(node, shell, images)


@pytest.fixture(scope="module")
def team(follower: Follower) -> Iterator[People]:
    known: Any = follower
    with people(known) as everybody:
        yield everybody


def test_from_an_empty_cluster_to_a_workspace_and_a_training(
    follower: Follower, team: People
) -> None:
    steps = guide.commands(SECTION)
    images = [one for one in steps if one.remark == guide.REGISTRY]
    for step in images:
        follower.follow(step)
    begun = time.monotonic()
    took = 0.0
    for step in steps:
        if step in images:
            continue
        follower.follow(step)
        if step.remark == guide.GOES_ON:
            _start_a_workspace(follower, team)
            took = time.monotonic() - begun
            print(f"from the first command to JupyterLab: {took:.0f} s")
    assert 0 < took < TEN_MINUTES
    assert "vision" in follower.said["kubectl get projects"]
    workspaces = "kubectl get workspaces --all-namespaces"
    pods.until(lambda: follower.lists(workspaces, "Running"), lambda: follower.said[workspaces])
    assert "final accuracy" in follower.said["carrel logs digits -p vision --follow"]
    assert "digits" in follower.listed("kubectl get trainings --all-namespaces")
    pods.until(lambda: follower.plane.get(DIGITS)["status"]["phase"] == "succeeded")


def _start_a_workspace(follower: Follower, team: People) -> None:
    """What the guide tells in words: sign in, choose, start."""
    project: dict[str, Any] = {}

    def is_known() -> Any:
        project.update(follower.plane.get(PROJECT))
        return project.get("status", {}).get("observedGeneration")

    pods.until(is_known, lambda: f"{project}\n{follower.shell.happening()}")
    page = team.page("ada")
    page.goto(f"{follower.url}/hub/spawn")
    assert "vision: 0 of 2 guaranteed GPUs in use" in page.inner_text("body")
    page.fill("input[name=gpus]", "0")
    page.locator("form [type=submit]").last.click()
    page.wait_for_url("**/lab**")
    page.wait_for_selector(".jp-DirListing-item >> text=carrel-demo.ipynb")
    page.close()


def test_the_parts_are_pods_with_the_rights_of_the_installation(follower: Follower) -> None:
    namespace = follower.plane.get(f"/api/v1/namespaces/{SYSTEM}")
    enforced = namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
    assert enforced == "restricted"
    running = follower.found(SYSTEM, PARTS)
    found = {one["metadata"]["labels"]["app.kubernetes.io/name"]: one for one in running}
    accounts = {name: one["spec"]["serviceAccountName"] for name, one in found.items()}
    assert accounts == ACCOUNTS
    tokens = {name for name, one in found.items() if "kube-api-access" in str(one["spec"])}
    assert tokens == {"carrel-hub", "carrel-scheduler"}
    images = {name: one["spec"]["containers"][0]["image"] for name, one in found.items()}
    assert images.pop("carrel-scheduler") == f"{REGISTRY}/scheduler:1"
    assert set(images.values()) == {f"{REGISTRY}/hub:1"}
    states = [one["status"]["containerStatuses"][0] for one in found.values()]
    assert not [one for one in states if one["restartCount"]]
    assert follower.plane.get(f"/apis/networking.k8s.io/v1/namespaces/{SYSTEM}/networkpolicies")[
        "items"
    ]
    bindings = follower.plane.get("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")["items"]
    ours = {
        one["roleRef"]["name"]
        for one in bindings
        for subject in one.get("subjects") or []
        if subject.get("namespace") == SYSTEM
    }
    assert ours == {"carrel-scheduler"}


def test_work_runs_as_the_settings_say(follower: Follower) -> None:
    workspace = follower.workspace()["spec"]
    assert workspace["containers"][0]["image"] == f"{REGISTRY}/workspace:1"
    assert workspace["schedulerName"] == "carrel"
    (training,) = follower.found(VISION, "carrel.dev%2Fkind%3Dtraining")
    assert training["spec"]["containers"][0]["image"] == f"{REGISTRY}/trainer:1"
    assert training["metadata"]["annotations"]["carrel.dev/devices"] == "0"
    keys = follower.plane.get(f"/api/v1/namespaces/{SYSTEM}/secrets/carrel-keys")["data"]
    assert len(set(keys.values())) == len(keys) == 9
    settings = ClusterHubSettings.load(follower.shell.folder / "my-cluster" / "settings.yaml")
    assert settings.public_url == follower.url


def test_nobody_else_gets_into_the_workspace(follower: Follower) -> None:
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{follower.url}/user/ada/api/status", timeout=120)
    with refused.value as answer:
        assert answer.code == 403


def test_a_newer_version_replaces_all_parts_and_the_workspace_runs_on(
    follower: Follower, team: People
) -> None:
    page = team.page("ada")
    before = pods.until(lambda: follower.status(page))["started"]
    pod = follower.workspace()["metadata"]["uid"]
    old = {one["metadata"]["uid"] for one in follower.found(SYSTEM, PARTS)}
    for part in ("hub", "scheduler"):
        follower.load(part, f"{REGISTRY}/{part}:2")
    for command in guide.commands("Newer versions"):
        follower.follow(command)
    parts = follower.found(SYSTEM, PARTS)
    new = [one for one in parts if "deletionTimestamp" not in one["metadata"]]
    images = {one["spec"]["containers"][0]["image"] for one in new}
    assert images == {f"{REGISTRY}/hub:2", f"{REGISTRY}/scheduler:2"}
    assert not old & {one["metadata"]["uid"] for one in new}
    # The Hub, which is as new, first looks where its workspaces are.
    assert pods.until(lambda: follower.status(page))["started"] == before
    assert follower.workspace()["metadata"]["uid"] == pod
    page.close()


def test_a_proxy_that_is_lost_has_its_routes_again_at_once(
    follower: Follower, team: People
) -> None:
    """JupyterHub alone would look after them every five minutes."""
    (proxy,) = follower.found(SYSTEM, "app.kubernetes.io%2Fname%3Dcarrel-proxy")
    pods.delete(follower.plane, proxy["metadata"]["name"], namespace=SYSTEM)
    follower.shell.run(f"kubectl -n {SYSTEM} rollout status deployment/carrel-proxy")
    page = team.page("ada")
    pods.until(lambda: follower.status(page))
    page.close()


def test_a_workspace_that_is_stopped_leaves_its_files(follower: Follower, team: People) -> None:
    page = team.page("ada")
    page.goto(f"{follower.url}/hub/home")
    xsrf = page.evaluate("window.jhdata.xsrf_token")
    page.request.delete(f"{follower.url}/hub/api/users/ada/server?_xsrf={xsrf}")
    pods.until(lambda: not follower.found(VISION, "carrel.dev%2Fkind%3Dworkspace"))
    page.close()
    home = follower.shell.folder.parent / "volumes" / VISION / "home-ada"
    assert (home / "carrel-demo.ipynb").exists()


def test_no_step_gives_up_on_what_has_no_conditions_yet() -> None:
    """As `kubectl wait --for=condition` does on a definition that was made a moment ago."""
    steps = [one.text for one in (*guide.commands(SECTION), *guide.commands("Newer versions"))]
    assert any("deploy/kubernetes/crds" in step for step in steps)
    assert not [step for step in steps if "--for=condition" in step]


def test_what_somebody_writes_in_addition_is_valid(follower: Follower) -> None:
    found = guide.manifests()
    assert [one["kind"] for one in found] == ["Ingress"]
    for one in found:
        path = f"/apis/networking.k8s.io/v1/namespaces/{SYSTEM}/ingresses?dryRun=All"
        follower.plane.ask("POST", path, one)


def _policies(plane: ControlPlane) -> set[str]:
    """What speaks up in everybody's requests, other tests' too."""
    base = "/apis/admissionregistration.k8s.io/v1"
    kinds = ("validatingadmissionpolicybindings", "validatingadmissionpolicies")
    return {
        f"{base}/{kind}/{one['metadata']['name']}"
        for kind in kinds
        for one in plane.get(f"{base}/{kind}")["items"]
    }


def _take_away(plane: ControlPlane, before: set[str]) -> None:
    """All of it that other tests would meet."""
    made = [f"{APPS}/{name}" for name in ACCOUNTS]
    made += [PROJECT]
    made += [f"/api/v1/namespaces/{SYSTEM}/secrets/carrel-keys"]
    for path in (*made, *(_policies(plane) - before)):
        with suppress(Refused):
            plane.ask("DELETE", path)
    for namespace in (SYSTEM, VISION):
        base = f"/api/v1/namespaces/{namespace}/pods"
        plane.ask("DELETE", f"{base}?gracePeriodSeconds=0")
        pods.until(partial(_is_empty, plane, base))


def _is_empty(plane: ControlPlane, path: str) -> bool:
    return not plane.get(path)["items"]
