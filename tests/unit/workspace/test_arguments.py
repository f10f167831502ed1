"""What whoever starts a server is told."""

import json
from pathlib import Path
from typing import Any

import pytest
from jupyterhub.singleuser.extension import JupyterHubIdentityProvider
from traitlets.config import Config

from carrel.workspace import AUTH_CACHE_SECONDS, LABEXTENSIONS, environment, server_arguments


def test_arguments_enable_both_halves() -> None:
    arguments = server_arguments()
    assert "--ServerApp.jpserver_extensions=carrel.workspace=True" in arguments
    assert "--ServerApp.jpserver_extensions=jupyter_server_proxy=False" in arguments
    assert f"--LabApp.extra_labextensions_path={LABEXTENSIONS}" in arguments


def test_a_server_soon_asks_the_hub_again_whose_session_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {"API_TOKEN": "t", "CLIENT_ID": "c", "SERVICE_PREFIX": "/user/ada/"}.items():
        monkeypatch.setenv(f"JUPYTERHUB_{name}", value)
    monkeypatch.setenv("JUPYTERHUB_SERVICE_URL", "http://127.0.0.1:1")
    told = dict(one.removeprefix("--").split("=", 1) for one in server_arguments())
    config = Config({"HubOAuth": {"cache_max_age": int(told["HubOAuth.cache_max_age"])}})
    provider: Any = JupyterHubIdentityProvider(config=config)
    assert provider.hub_auth.cache.max_age == AUTH_CACHE_SECONDS <= 5


def test_labextension_lies_below_its_own_name() -> None:
    package = json.loads((LABEXTENSIONS / "carrel" / "package.json").read_text())
    assert package["name"] == "carrel"
    assert (LABEXTENSIONS / "carrel" / package["jupyterlab"]["_build"]["load"]).is_file()


def test_kernels_run_the_startup_file() -> None:
    assert Path(environment()["PYTHONSTARTUP"]).is_file()
