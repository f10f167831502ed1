"""The images of ``images/``: what is in them, in pods under the security standard `restricted`.

That they work, a workspace lets its owner in and a job learns, is seen in ``test_guide``.
"""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from k8s.cluster import pods
from k8s.cluster.images.builder import IMAGES, Image
from k8s.cluster.images.context import REPOSITORY
from k8s.cluster.node import Node

slow = [pytest.mark.enable_socket, pytest.mark.slow, pytest.mark.root]
NAMESPACE = "restricted"
READ_ONLY = {"securityContext": {**pods.RESTRICTED, "readOnlyRootFilesystem": True}}
EXTRAS = {
    "trainer": ("jobs", "demo"),
    "workspace": ("jobs", "demo"),
    "scheduler": ("scheduler", "postgresql", "parquet"),
    "hub": (),
}
"""Of the distribution, as ``images/lock.sh`` names them."""
# Programs of one machine, run by name, and a library are no modules that a part imports.
IMPORTS = """
import importlib, pkgutil
others = ('.__main__', '.env', '.libcarrel_gpu_limit', '.images.fetch', '.images.unpack')
for package in {packages}:
    top = importlib.import_module(package)
    for module in pkgutil.walk_packages(top.__path__, package + '.'):
        if not module.name.endswith(others):
            importlib.import_module(module.name)
print('all there')
"""
PARQUET = """
from carrel_scheduler.api.services.governance.usage_tables import as_parquet
from carrel_schema.history import Usage
print(as_parquet('project', [Usage(key='vision')])[:4].decode())
"""
TELLS = """
import signal, sys, time
from pathlib import Path
def told(number, _):
    Path('/told/signal').write_text(str(number))
    sys.exit()
signal.signal(signal.SIGTERM, told)
Path('/told/ready').touch()
while True:  # a signal between two instructions would not end a pause
    time.sleep(0.1)
"""


def _pinned(image: str) -> dict[str, tuple[str, list[str]]]:
    """Version and hashes by name."""
    text = (REPOSITORY / "images" / image / "requirements.txt").read_text()
    found = {}
    for line in text.replace("\\\n", " ").splitlines():
        pin, *hashes = line.split()
        name, version = pin.split("==")
        assert all(one.startswith("--hash=sha256:") for one in hashes), line
        found[name] = (version, hashes)
    return found


def _dockerfile(image: str) -> str:
    return (REPOSITORY / "images" / image / "Dockerfile").read_text()


@pytest.mark.parametrize("image", IMAGES)
def test_everything_is_pinned(image: str) -> None:
    """By version and by the hashes of the files: another file of that version is not installed."""
    for name, (_, hashes) in _pinned(image).items():
        assert hashes, name
    assert "--require-hashes" in _dockerfile(image)


@pytest.mark.parametrize(("image", "extras"), EXTRAS.items())
def test_what_is_pinned_is_what_the_product_asks_for(image: str, extras: tuple[str, ...]) -> None:
    """When it is not, ``images/lock.sh`` writes it anew."""
    folder = REPOSITORY / "images" / image
    pinned = _pinned(image)
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    if (folder / "requirements.in").exists():
        lines = (folder / "requirements.in").read_text().splitlines()
        wanted += [line for line in lines if not line.startswith("#")]
    for one in map(Requirement, wanted):
        assert one.specifier.contains(pinned[canonicalize_name(one.name)][0]), one


def test_a_workspace_begins_as_a_job_does() -> None:
    """So that their layers are shared, and libraries are the same in both."""
    begin, end = "ARG BASE", "ENTRYPOINT"
    trainer, workspace = _dockerfile("trainer"), _dockerfile("workspace")
    shared = trainer[trainer.index(begin) : trainer.index(end)]
    assert workspace[workspace.index(begin) :].startswith(shared)
    there = _pinned("workspace")
    assert all(there[name] == pin for name, pin in _pinned("trainer").items())


@pytest.fixture(scope="module")
def restricted(node: Node) -> str:
    """A namespace that takes no pod with more rights than the strictest standard gives."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": NAMESPACE, "labels": labels}
    node.plane.ask("POST", "/api/v1/namespaces", {"metadata": metadata})
    return NAMESPACE


def _run(node: Node, name: str, image: Image, *arguments: str, **container: Any) -> str:
    """What a pod wrote that ran to its end under `restricted`."""
    pods.make(
        node.plane,
        name,
        image.name,
        arguments,
        nodeName=node.name,
        namespace=NAMESPACE,
        container={"securityContext": pods.RESTRICTED, **container},
    )
    ended = pods.wait(node.plane, name, "Succeeded", "Failed", namespace=NAMESPACE)
    said = pods.log(node.plane, name, namespace=NAMESPACE)
    assert ended["status"]["phase"] == "Succeeded", said
    return said


@pytest.mark.usefixtures("restricted")
class TestRestricted:
    pytestmark = slow

    def test_the_hub_has_all_it_imports(self, node: Node, hub_image: Image) -> None:
        code = IMPORTS.format(packages=["carrel_hub", "carrel_spawner", "kubespawner"])
        assert _run(node, "hub", hub_image, "python", "-c", code, **READ_ONLY) == "all there\n"

    def test_the_scheduler_has_all_it_imports(self, node: Node, scheduler_image: Image) -> None:
        code = IMPORTS.format(packages=["carrel_scheduler"])
        said = _run(node, "imports", scheduler_image, "python", "-c", code, **READ_ONLY)
        assert said == "all there\n"

    def test_the_scheduler_writes_parquet(self, node: Node, scheduler_image: Image) -> None:
        said = _run(node, "parquet", scheduler_image, "python", "-c", PARQUET, **READ_ONLY)
        assert said == "PAR1\n"

    def test_the_scheduler_tells_what_it_needs(self, node: Node, scheduler_image: Image) -> None:
        shell = ["sh", "-c", "carrel-scheduler 2>&1 || true"]
        said = _run(node, "scheduler", scheduler_image, *shell, **READ_ONLY)
        assert said.startswith("carrel-scheduler: ")
        assert "is not set" in said


class TestSignals:
    pytestmark = slow

    def test_a_job_behind_a_shell_hears_that_it_has_to_end(
        self, node: Node, trainer_image: Image, tmp_path: Path
    ) -> None:
        tmp_path.chmod(0o777)
        volume = {"name": "told", "hostPath": {"path": str(tmp_path)}}
        mount = {"volumeMounts": [{"name": "told", "mountPath": "/told"}]}
        # A shell that ended at once would end the container before the job could save anything.
        behind = ["sh", "-c", 'trap : TERM; python -c "$1"; true', "sh", TELLS]
        pods.make(
            node.plane,
            "behind",
            trainer_image.name,
            behind,
            nodeName=node.name,
            container=mount,
            volumes=[volume],
        )
        pods.until((tmp_path / "ready").exists)
        pods.delete(node.plane, "behind", grace_seconds=30)
        assert (tmp_path / "signal").read_text() == "15"
