"""What the program of a workspace's server does not do while somebody waits for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OURS = "from carrel.workspace.server import prepare; prepare();"
IMPORT = "import jupyterlab.labapp"


@pytest.mark.parametrize(("program", "asked"), [(f"{OURS} {IMPORT}", False), (IMPORT, True)])
def test_node_is_not_asked_for_a_registry(tmp_path: Path, program: str, asked: bool) -> None:
    """Plain JupyterLab does ask: else there is nothing to be spared any more."""
    node, mark = tmp_path / "node", tmp_path / "asked"
    node.write_text(f"#!/bin/sh\ntouch {mark}\n")
    node.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"
    subprocess.run([sys.executable, "-c", program], env=os.environ | {"PATH": path}, check=True)
    assert mark.exists() is asked


def test_the_version_of_jupyterlab_is_known_all_the_same() -> None:
    program = (
        f"{OURS} from jupyterlab import labapp; print(labapp.app_version == labapp.__version__)"
    )
    made = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert made.stdout.strip() == "True"
