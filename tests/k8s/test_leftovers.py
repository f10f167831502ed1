"""A run with a node and a running pod that is killed: the next one removes all of it."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from k8s.cluster import leftovers
from k8s.cluster.containerd import KEEPERS
from k8s.cluster.images.builder import Image
from k8s.cluster.infrastructure import PYTHON_PATH
from k8s.cluster.plane import ControlPlane, Refused
from k8s.cluster.records import Record, home, start_of

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow, pytest.mark.root]
SECONDS = 900.0

NODE = "worker-4"
STARTS_A_NODE = """
import json, sys
from pathlib import Path
from k8s.cluster import binaries, infrastructure, node, pods
from k8s.cluster.plane import ControlPlane
from k8s.cluster.records import Record
base, archive, image, name, told = sys.argv[1:]
url, authority, token, nodes, service, issuer = json.loads(told)
record = Record.begin(Path(base))
plane = ControlPlane(url, Path(authority), token, nodes, service, Path(issuer))
worker = node.start(infrastructure.bridge(binaries.node(print), plane, record), name)
worker.load(Path(archive))
pods.make(plane, "left", image, ["sleep", "600"], nodeName=worker.name)
pods.wait(plane, "left")
print("running", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def joined(plane: ControlPlane) -> Iterator[str]:
    """How another run joins the cluster of this one; its node and its pod are removed from it."""
    known = (plane.url, str(plane.authority), plane.admin_token)
    yield json.dumps([*known, dict(plane.node_tokens), plane.service, str(plane.issuer)])
    for path in (f"/api/v1/nodes/{NODE}", "/api/v1/namespaces/default/pods/left"):
        with suppress(Refused):
            plane.ask("DELETE", f"{path}?gracePeriodSeconds=0")


@pytest.mark.timeout(2 * SECONDS)
def test_a_killed_run_leaves_nothing_to_the_next(base_image: Image, joined: str) -> None:
    settings = leftovers.settings()
    before = _keepers()
    base = home().with_name(f"carrel-killed-{os.getpid()}")  # sockets have short paths
    arguments = [str(base), str(base_image.archive), base_image.name, NODE, joined]
    with subprocess.Popen(
        [sys.executable, "-c", STARTS_A_NODE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        text=True,
    ) as run:
        assert run.stdout is not None
        try:
            assert "running\n" in iter(run.stdout.readline, "")
        except AssertionError:
            run.kill()
            run.wait(SECONDS)
            Record.begin(base).end()  # of what had begun nothing is left either
            raise
        (folder,) = base.iterdir()
        named = [line.split() for line in (folder / "leftovers").read_text().splitlines()]
        started = [line.split() for line in (folder / "processes").read_text().splitlines()]
        groups = [Path(name) for kind, name, *_ in named if kind == "group"]
        inside = {pid: start_of(pid) for group in groups for pid in leftovers.members(group)}
        assert inside
        listening = _keepers() - before
        assert listening
        run.send_signal(signal.SIGKILL)
        run.wait(SECONDS)
    Record.begin(base).end()
    assert not list(base.iterdir())
    base.rmdir()
    assert not [pid for pid, start in started if start_of(int(pid)) == start]
    assert not [pid for pid, start in inside.items() if start_of(pid) == start != ""]
    assert not [group for group in groups if group.exists()]
    (bridge,) = [name for kind, name, *_ in named if kind == "interface"]
    assert not Path("/sys/class/net", bridge).exists()
    assert not [socket for socket in listening if socket.exists()]
    assert str(base) not in Path("/proc/self/mountinfo").read_text()
    (pods_network,) = [name for kind, name, *_ in named if kind == "route"]
    routes = subprocess.run(["ip", "route"], check=True, capture_output=True, text=True).stdout
    assert pods_network not in routes
    assert leftovers.settings() == settings


def _keepers() -> set[Path]:
    """Sockets of whatever keeps containers on this machine."""
    return set(Path(KEEPERS).iterdir()) if Path(KEEPERS).exists() else set()
