"""Which server, which token: sources, their order, and tokens that stay with their server."""

import stat
from pathlib import Path

import pytest

from carrel.client import config
from carrel.errors import BadSetting, NotSignedIn

URL = "http://hub/services/carrel"
OTHER = "http://other/services/carrel"


@pytest.fixture
def stored(tmp_path: Path) -> dict[str, str]:
    environ = {"CARREL_CONFIG_FILE": str(tmp_path / "deep" / "config.json")}
    config.save(config.Stored(url=URL, token="from-file", project="vision"), environ)
    return environ


def test_the_file_is_for_its_owner_only(stored: dict[str, str]) -> None:
    file = config.path(stored)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert config.load(stored).project == "vision"
    assert [entry.name for entry in file.parent.iterdir()] == ["config.json"]


def test_the_file_alone_is_enough(stored: dict[str, str]) -> None:
    settings = config.resolve(environ=stored)
    assert (settings.url, settings.token, settings.project) == (URL, "from-file", "vision")


def test_arguments_go_before_environment_before_file(stored: dict[str, str]) -> None:
    environ = {**stored, "CARREL_URL": OTHER, "CARREL_TOKEN": "from-env", "CARREL_PROJECT": "p"}
    settings = config.resolve(environ=environ)
    assert (settings.url, settings.token, settings.project) == (OTHER, "from-env", "p")
    assert config.resolve("http://third", "own", environ).token == "own"


def test_a_workspace_uses_its_own_token(tmp_path: Path) -> None:
    environ = {"CARREL_URL": URL + "/", "JUPYTERHUB_API_TOKEN": "workspace"}
    environ["CARREL_CONFIG_FILE"] = str(tmp_path / "none")
    assert config.resolve(environ=environ).token == "workspace"


def test_tokens_are_sent_only_to_the_server_they_came_with(stored: dict[str, str]) -> None:
    with pytest.raises(NotSignedIn, match="carrel login --url http://other"):
        config.resolve(OTHER, environ=stored)
    environ = {**stored, "CARREL_URL": URL, "JUPYTERHUB_API_TOKEN": "workspace"}
    with pytest.raises(NotSignedIn):
        config.resolve(OTHER, environ=environ)


def test_nothing_known_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotSignedIn, match="carrel login"):
        config.resolve(environ={"CARREL_CONFIG_FILE": str(tmp_path / "none")})


@pytest.mark.parametrize("url", ["hub:8000", "ftp://hub/x", "/services/carrel", "http://"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(BadSetting, match="not the URL"):
        config.resolve(url, "t", {})


def test_a_broken_file_is_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text("{")
    with pytest.raises(BadSetting, match="sign in again"):
        config.load({"CARREL_CONFIG_FILE": str(file)})


def test_the_usual_places() -> None:
    assert config.path({"XDG_CONFIG_HOME": "/x"}) == Path("/x/carrel/config.json")
    assert config.path({}) == Path.home() / ".config/carrel/config.json"


def test_tokens_do_not_show() -> None:
    assert "secret" not in repr(config.ClientSettings(URL, "secret"))
