"""The cluster of the tests: it answers, its controllers work, it leaves nothing behind."""

import json
import os
import signal
import subprocess
import sys
import time
from base64 import b64encode
from pathlib import Path

import pytest

from k8s.cluster import running
from k8s.cluster.control_plane import ControlPlane, NotReady, Refused
from k8s.cluster.infrastructure import PYTHON_PATH
from k8s.cluster.records import Record, clean_up, start_of

pytestmark = [pytest.mark.enable_socket, pytest.mark.slow]
TIMEOUT_SECONDS = 180.0

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
    plane.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "controllers-work"}})
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while True:
        try:
            found = plane.get("/api/v1/namespaces/controllers-work/serviceaccounts/default")
            break
        except Refused:
            assert time.monotonic() < deadline, "no service account was made"
            time.sleep(0.1)
    assert found["metadata"]["namespace"] == "controllers-work"


def test_a_running_cluster_is_taken_as_it_is(plane: ControlPlane, tmp_path: Path) -> None:
    taken = running.read(plane.kubeconfig(tmp_path / "kubeconfig"), tmp_path)
    assert taken.get("/readyz") == "ok"
    assert taken.kubeconfig(tmp_path / "copy").read_text() == (tmp_path / "kubeconfig").read_text()


def test_a_running_cluster_may_know_its_users_by_certificate(
    plane: ControlPlane, tmp_path: Path
) -> None:
    parts = json.loads(plane.kubeconfig(tmp_path / "kubeconfig").read_text())
    named = {"client-certificate": plane.issuer.with_name("client.crt")}
    named["client-key"] = plane.issuer.with_name("client.key")
    given = {f"{name}-data": b64encode(file.read_bytes()).decode() for name, file in named.items()}
    parts["users"][0]["user"] = given
    (tmp_path / "kubeconfig").write_text(json.dumps(parts))
    assert "v1" in running.read(tmp_path / "kubeconfig", tmp_path).get("/api")["versions"]
    parts["users"][0]["user"] = {}
    (tmp_path / "kubeconfig").write_text(json.dumps(parts))
    with pytest.raises(NotReady, match="needs an authority"):
        running.read(tmp_path / "kubeconfig", tmp_path)


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
    plane.ask("DELETE", "/api/v1/nodes/node-1")


def test_what_a_killed_run_left_is_ended_by_the_next(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", LEAVES_A_PROCESS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": PYTHON_PATH},
        text=True,
    ) as run:
        assert run.stdout is not None
        child = int(run.stdout.readline())
        clean_up(tmp_path)
        assert start_of(child)  # its run lives: it is let alone
        run.send_signal(signal.SIGKILL)
        run.wait(TIMEOUT_SECONDS)
    Record.begin(tmp_path).end()
    assert not list(tmp_path.iterdir())
    assert not start_of(child)
