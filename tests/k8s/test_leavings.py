"""A run with a node and a running pod that is killed: the next one removes all of it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from k8s.cluster import leavings
from k8s.cluster.containerd import KEEPERS
from k8s.cluster.ground import PYTHON_PATH
from k8s.cluster.images.builder import Image
from k8s.cluster.records import Record, home, start_of

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow, pytest.mark.root]
SECONDS = 900.0

STARTS_A_NODE = """
import sys
from pathlib import Path
from k8s.cluster import binaries, control_plane, ground, node, pods
from k8s.cluster.records import Record
base, archive, image = sys.argv[1:]
record = Record.begin(Path(base))
plane = control_plane.start(binaries.control_plane(print), record)
worker = node.start(ground.prepare(binaries.node(print), plane, record), "worker-1")
worker.load(Path(archive))
pods.make(plane, "left", image, ["sleep", "600"], nodeName=worker.name)
pods.wait(plane, "left")
print("running", flush=True)
sys.stdin.read()
"""


@pytest.mark.timeout(2 * SECONDS)
def test_a_killed_run_leaves_nothing_to_the_next(base_image: Image) -> None:
    settings = leavings.settings()
    before = _keepers()
    base = home().with_name(f"carrel-killed-{os.getpid()}")  # sockets have short paths
    arguments = [str(base), str(base_image.archive), base_image.name]
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
        named = [line.split() for line in (folder / "leavings").read_text().splitlines()]
        started = [line.split() for line in (folder / "processes").read_text().splitlines()]
        groups = [Path(name) for kind, name, *_ in named if kind == "group"]
        inside = {pid: start_of(pid) for group in groups for pid in leavings.members(group)}
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
    assert leavings.settings() == settings


def _keepers() -> set[Path]:
    """Sockets of whatever keeps containers on this machine."""
    return set(Path(KEEPERS).iterdir()) if Path(KEEPERS).exists() else set()
