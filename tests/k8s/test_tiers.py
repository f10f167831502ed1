"""What runs is said plainly: where programs come from, which tiers ran, why one did not."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from k8s.cluster import binaries, tiers
from k8s.cluster.plane import ControlPlane
from k8s.cluster.versions import CONTROL_PLANE

HERE = Path(__file__).parent
SECONDS = 600.0
ASKS_FOR_A_NODE = f"{HERE / 'test_node.py'}::test_a_pod_is_read_and_entered"


def test_ready_programs_are_taken(tmp_path: Path) -> None:
    for one in CONTROL_PLANE:
        (tmp_path / one.name).touch()
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    found = binaries.control_plane(pytest.fail, environ)
    assert found == {one.name: tmp_path / one.name for one in CONTROL_PLANE}


def test_a_change_of_a_module_is_another_program() -> None:
    folders = {one.module: one.folder for one in CONTROL_PLANE}
    assert len(set(folders.values())) == len(folders)
    assert all(folder.startswith(f"{module}-") for module, folder in folders.items())


def test_programs_that_are_missing_are_named() -> None:
    reason = tiers.why_no_node({"PATH": "/nowhere"}, also=())
    if os.geteuid() == 0:
        assert reason.startswith("runc, ip, ")
        assert "make cluster" in reason
    else:
        assert reason == "nodes run as root only"


@pytest.mark.enable_socket
@pytest.mark.slow
@pytest.mark.parametrize(("ci", "outcome"), [("", "1 skipped"), ("true", "1 error")])
def test_a_tier_that_cannot_run_says_so(
    plane: ControlPlane, tmp_path: Path, ci: str, outcome: str
) -> None:
    named = str(plane.kubeconfig(tmp_path / "kubeconfig"))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", ASKS_FOR_A_NODE],
        check=False,
        capture_output=True,
        text=True,
        cwd=HERE.parents[1],
        env={**os.environ, "CI": ci, tiers.RUNNING: named},
        timeout=SECONDS,
    )
    assert done.stdout.splitlines()[-1].startswith(outcome), done.stdout
    assert f"control plane tier: ran on the cluster of {named}" in done.stdout
    reason = f"{tiers.RUNNING} names a cluster that has nodes of its own"
    assert f"node tier: did not run: {reason}" in done.stdout
