"""Tools beside JupyterLab in a real server: VS Code where it is installed, one's own ports."""

import os
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from carrel.testing import FakeScheduler
from contract.notebook.lab import TOKEN, Lab, running_lab
from contract.notebook.test_activity import told

PROGRAM = Path(__file__).with_name("code_server.py")


@pytest.fixture(scope="module")
def lab(scheduler: FakeScheduler, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("home")
    program = home / "programs" / "code-server"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {PROGRAM} "$@"\n')
    program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        with running_lab(scheduler, home) as running:
            yield running


def page(lab: Lab, path: str, token: str = TOKEN) -> str:
    headers = {"Authorization": f"token {token}"}
    request = urllib.request.Request(f"{lab.url}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def test_vs_code_is_there_for_its_owner_and_counts_as_work(
    lab: Lab, scheduler: FakeScheduler
) -> None:
    before = told(scheduler, lambda _: True)
    assert page(lab, "vscode/login") == f"a page of {lab.folder}, asked for /login"
    told(scheduler, lambda now: now["last_input_at"] > before["last_input_at"])
    assert "a page of" not in page(lab, "vscode/", token="somebody-else")


def test_own_ports_are_there_for_their_owner(lab: Lab) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            assert "Directory listing" in page(lab, f"proxy/{server.server_port}/")
            strangers = page(lab, f"proxy/{server.server_port}/", token="somebody-else")
            assert "Directory listing" not in strangers
        finally:
            server.shutdown()
            thread.join()


def test_the_launcher_offers_what_is_installed(lab: Lab) -> None:
    offered = lab.ask("server-proxy/servers-info")["server_processes"]
    assert [(one["name"], one["launcher_entry"]["enabled"]) for one in offered] == [
        ("vscode", True)
    ]
