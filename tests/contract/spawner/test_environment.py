"""A workspace's own start: the environment's kernel is the usual one, the folders are in the home.

With real virtual environments (made of symbolic links, nothing is installed).
"""

import json
import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest
from jupyter_client.kernelspec import KernelSpecManager

from carrel_spawner import launch, options, python_environment
from carrel_spawner.options import ENVIRONMENT, FOLDERS, BadOption


def make(folder: Path, *, with_kernel: bool) -> Path:
    """An environment without anything, or one that finds the packages of this one."""
    venv.create(folder, symlinks=True, with_pip=False)
    if with_kernel:
        [packages] = (folder / "lib").glob("python*/site-packages")
        (packages / "found.pth").write_text("\n".join(sys.path[1:]))
    return folder


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (ENVIRONMENT, FOLDERS, "JUPYTER_PATH", "XDG_DATA_HOME", "VIRTUAL_ENV", "PATH"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    monkeypatch.setenv("JUPYTERHUB_SERVER_NAME", "my lab")
    found = tmp_path / "home"
    found.mkdir()
    return found


def test_the_environments_kernel_is_the_usual_one(home: Path) -> None:
    """It says where it runs; ours stays beside it under a name of its own."""
    made = make(home / "science", with_kernel=True)
    launch.use_environment(home, "~/science")
    kernels = Path(os.environ["JUPYTER_PATH"].split(":")[0])
    manager = KernelSpecManager(kernel_dirs=[str(kernels / "kernels")])
    usual = manager.get_kernel_spec("python3")
    assert usual.argv[0] == str(made / "bin" / "python")
    assert usual.display_name.endswith("(science)")
    assert manager.get_kernel_spec("carrel").argv[0] == sys.executable
    said = subprocess.run(
        ["python", "-c", "import sys; print(sys.prefix)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == str(made)
    assert os.environ["VIRTUAL_ENV"] == str(made)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("/no/such/place", "a folder that is there"),
        ("~/empty", "it has no bin/python"),
        ("~/bare", "one with ipykernel: run .*/bare/bin/python -m pip install ipykernel"),
        ("~/dangling", "leads to /gone/python"),
        ("~/broken", "one whose Python runs"),
    ],
)
def test_an_environment_that_cannot_be_used_is_named_with_the_reason(
    home: Path, prefix: str, expected: str
) -> None:
    (home / "empty").mkdir()
    make(home / "bare", with_kernel=False)
    for name in ("dangling", "broken"):
        (home / name / "bin").mkdir(parents=True)
    (home / "dangling" / "bin" / "python").symlink_to("/gone/python")
    program = home / "broken" / "bin" / "python"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    with pytest.raises(BadOption, match=expected) as caught:
        python_environment.find(prefix, home)
    assert (caught.value.field, caught.value.value) == ("environment", prefix)


def test_folders_are_seen_in_the_home_and_nothing_of_the_user_gives_way(home: Path) -> None:
    for name in ("a", "b"):
        (home.parent / name).mkdir()
    first, second = (str(home.parent / name) for name in ("a", "b"))
    launch.link_folders(home, json.dumps([[first, "data"], [first, "deep/set"]]))
    launch.link_folders(home, json.dumps([[second, "data"]]))
    assert (home / "data").readlink() == Path(second)
    assert (home / "deep" / "set").readlink() == Path(first)
    (home / "thesis").write_text("words")
    with pytest.raises(BadOption, match="there is a thesis in your home already"):
        launch.link_folders(home, json.dumps([[first, "thesis"]]))
    assert (home / "thesis").read_text() == "words"
    with pytest.raises(BadOption, match="a folder that you may read"):
        launch.link_folders(home, json.dumps([[str(home / "gone"), "x"]]))


def test_the_start_ends_with_the_sentence_in_its_log(home: Path) -> None:
    environment = {**os.environ, "HOME": str(home), ENVIRONMENT: "/no/such/place", FOLDERS: ""}
    ended = subprocess.run(
        [sys.executable, "-m", "carrel_spawner.launch"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == launch.CONFIGURATION_ERROR
    [line] = ended.stderr.splitlines()
    expected = BadOption("environment", "/no/such/place", "a folder that is there, of a virtual or "
                         "conda environment")  # fmt: skip
    assert line == options.log_line(expected)
