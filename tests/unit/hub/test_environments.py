"""Python environments that an admin offers to workspaces."""

from pathlib import Path

import pytest
from traitlets.config import Config

from carrel_hub.config import kinds
from carrel_hub.up.checks import StartupError
from carrel_hub.up.options import environments
from carrel_spawner.options import WorkspaceProfile
from carrel_spawner.spawner import CarrelSpawner


def made(folder: Path) -> Path:
    """What looks like one."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").touch()
    return folder


def test_an_offered_environment_is_a_kind_of_workspace(tmp_path: Path) -> None:
    torch = made(tmp_path / "torch")
    listed = kinds(environments([f"torch-2.4={torch}"]))
    config = Config(CarrelSpawner={"profile_list": listed})
    spawner = CarrelSpawner(config=config)
    assert list(spawner.profiles) == [
        WorkspaceProfile("carrel", "Carrel's own Python", volumes=()),
        WorkspaceProfile("torch-2.4", "torch-2.4", str(torch), str(torch), ()),
    ]
    assert spawner.offer.folders
    assert kinds({}) == []


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["torch"], "NAME=FOLDER is right"),
        (["/x=/y"], "NAME=FOLDER is right"),
        (["carrel={made}"], "not 'carrel'"),
        (["a={made}", "a={made}"], "each NAME once"),
        (["a=/no/such/place"], "/no/such/place is no Python environment"),
    ],
)
def test_one_that_cannot_be_offered_is_named(
    tmp_path: Path, texts: list[str], expected: str
) -> None:
    folder = made(tmp_path / "made")
    with pytest.raises(StartupError, match=expected):
        environments(text.format(made=folder) for text in texts)
