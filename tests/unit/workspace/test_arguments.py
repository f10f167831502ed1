"""What whoever starts a server is told."""

import json
from pathlib import Path

from carrel.workspace import LABEXTENSIONS, environment, server_arguments


def test_arguments_enable_both_halves() -> None:
    arguments = server_arguments()
    assert "--ServerApp.jpserver_extensions=carrel.workspace=True" in arguments
    assert "--ServerApp.jpserver_extensions=jupyter_server_proxy=False" in arguments
    assert f"--LabApp.extra_labextensions_path={LABEXTENSIONS}" in arguments


def test_labextension_lies_below_its_own_name() -> None:
    package = json.loads((LABEXTENSIONS / "carrel" / "package.json").read_text())
    assert package["name"] == "carrel"
    assert (LABEXTENSIONS / "carrel" / package["jupyterlab"]["_build"]["load"]).is_file()


def test_kernels_run_the_startup_file() -> None:
    assert Path(environment()["PYTHONSTARTUP"]).is_file()
