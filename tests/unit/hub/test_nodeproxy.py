"""Telling Node's proxy from the Python port, whose script has the same name."""

import os
import sys
from pathlib import Path

import pytest

from carrel_hub.keys import Keys
from carrel_hub.settings import Ports, Settings
from carrel_hub.up import checks, nodeproxy
from carrel_hub.up.nodeproxy import find_node_proxy
from carrel_hub.up.parts import all_parts
from carrel_hub.up.trouble import Trouble

OF_PYTHON = f"#!{sys.executable}\nimport sys\nsys.exit(0)\n"
OF_NODE = "#!/usr/bin/env node\nconst { program } = require('commander');\n"


def program(folder: Path, name: str, text: str, mode: int = 0o755) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(mode)
    return folder / name


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Stands in for Node: any script of the proxy's runs."""
    return program(tmp_path / "bin", "node", "#!/bin/sh\nexit 0\n")


def path(*folders: Path) -> str:
    return os.pathsep.join(map(str, folders))


def test_the_python_ports_script_is_passed_over(tmp_path: Path, node: Path) -> None:
    port = program(tmp_path / "venv", nodeproxy.NAME, OF_PYTHON)
    script = program(tmp_path / "npm", nodeproxy.NAME, OF_NODE)
    where = path(port.parent, script.parent, node.parent)
    assert find_node_proxy(where) == [str(node), str(script)]


def test_npms_links_are_followed(tmp_path: Path, node: Path) -> None:
    script = program(tmp_path / "package", nodeproxy.NAME, OF_NODE)
    link = node.parent / nodeproxy.NAME
    link.symlink_to(script)
    assert find_node_proxy(path(node.parent)) == [str(node), str(link)]


@pytest.mark.parametrize(
    "first",
    ["#!/opt/node-22/bin/node", "#!/usr/bin/env -S node --no-warnings", "#!/usr/bin/nodejs"],
)
def test_ways_to_name_node(tmp_path: Path, node: Path, first: str) -> None:
    script = program(tmp_path / "npm", nodeproxy.NAME, f"{first}\n")
    assert find_node_proxy(path(script.parent, node.parent))[1] == str(script)


@pytest.mark.parametrize("first", ["#!/home/node/venv/bin/python", "node", "#!/bin/sh"])
def test_what_only_looks_like_node(tmp_path: Path, node: Path, first: str) -> None:
    script = program(tmp_path / "npm", nodeproxy.NAME, f"{first}\n")
    with pytest.raises(Trouble, match=f"{script} is not Node's.*npm install"):
        find_node_proxy(path(script.parent, node.parent))


def test_what_may_not_be_run_is_not_there(tmp_path: Path, node: Path) -> None:
    script = program(tmp_path / "npm", nodeproxy.NAME, OF_NODE, 0o644)
    with pytest.raises(Trouble, match="is not on the PATH: run npm install -g"):
        find_node_proxy(path(script.parent, node.parent))


def test_a_machine_without_node_is_said(tmp_path: Path) -> None:
    script = program(tmp_path / "npm", nodeproxy.NAME, OF_NODE)
    with pytest.raises(Trouble, match=r"needs Node\.js.*leave --proxy away"):
        find_node_proxy(path(script.parent))


def test_half_an_installation_is_said(tmp_path: Path, node: Path) -> None:
    node.write_text("#!/bin/sh\necho 'x:3' >&2; echo 'Error: no commander' >&2; exit 1\n")
    script = program(tmp_path / "npm", nodeproxy.NAME, OF_NODE)
    with pytest.raises(Trouble, match=r"does not run \(exit code 1: Error: no commander\)"):
        find_node_proxy(path(script.parent, node.parent))


@pytest.mark.parametrize(("choice", "level"), [("node", "warn"), ("auto", "warning")])
def test_each_proxy_is_told_the_level_by_its_own_word(
    tmp_path: Path, node: Path, monkeypatch: pytest.MonkeyPatch, choice: str, level: str
) -> None:
    script = program(tmp_path / "npm", nodeproxy.NAME, OF_NODE)
    monkeypatch.setenv("PATH", path(script.parent, node.parent))
    settings = Settings(
        state_dir=tmp_path,
        ports=Ports(hub=1, proxy_api=2, scheduler=3, console=4, gateway=5),
        managed=False,
    )
    command = checks.proxy_command(choice)
    part = all_parts(settings, Keys.generate(), tmp_path / "config.py", command)[0]
    told = list(part.command)
    assert told.count("--log-level") == 1
    assert told[told.index("--log-level") + 1] == level
