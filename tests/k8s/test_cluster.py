"""The cluster of the tests: it answers, its controllers work, it leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from k8s.cluster.control_plane import ControlPlane, Refused
from k8s.cluster.records import Record, clean_up, start_of

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
PATIENCE_SECONDS = 60.0

LEAVES_A_PROCESS = """
import sys
from pathlib import Path
from k8s.cluster.records import Record
record = Record.begin(Path(sys.argv[1]))
child = record.start(["sleep", "600"], record.folder / "log")
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_controllers_work(plane: ControlPlane) -> None:
    plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "carrel-vision"}})
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            found = plane.get("/api/v1/namespaces/carrel-vision/serviceaccounts/default")
            break
        except Refused:
            assert time.monotonic() < deadline, "no service account was made"
            time.sleep(0.1)
    assert found["metadata"]["namespace"] == "carrel-vision"


def test_strangers_are_not_let_in(plane: ControlPlane) -> None:
    stranger = ControlPlane(plane.url, plane.authority, "wrong")
    with pytest.raises(Refused) as refused:
        stranger.get("/api/v1/nodes")
    assert refused.value.status == 401


def test_nodes_are_mere_objects(plane: ControlPlane) -> None:
    node = {
        "metadata": {"name": "node-1"},
        "status": {"capacity": {"nvidia.com/gpu": "8", "cpu": "64", "memory": "256Gi"}},
    }
    made = plane.ask("POST", "/api/v1/nodes", node)
    assert made["status"]["capacity"]["nvidia.com/gpu"] == "8"


def test_what_a_killed_run_left_is_ended_by_the_next(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEAVES_A_PROCESS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        text=True,
    ) as run:
        assert run.stdout is not None
        child = int(run.stdout.readline())
        clean_up(tmp_path)
        assert start_of(child)  # its run lives: it is let alone
        run.send_signal(signal.SIGKILL)
        run.wait(PATIENCE_SECONDS)
    Record.begin(tmp_path).end()
    assert not list(tmp_path.iterdir())
    assert not start_of(child)
