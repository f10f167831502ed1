"""Repositories that ask for credentials: named secrets, told to git alone."""

import base64
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from carrel.client import AsyncClient
from carrel.errors import ApiError
from carrel_scheduler.workloads.launch.builtin_programs import FETCH_PROGRAM
from contract.service.jobs import client
from contract.service.test_code import ran, repository

__all__ = ["client", "repository"]
PLANTED = "planted-p4ss"
WHOLE = ["sh", "-c", "python train.py; python lib/tool/train.py; env | grep -c GIT_ || true"]


class Guarded(SimpleHTTPRequestHandler):
    """Files for who knows the password."""

    @override
    def do_GET(self) -> None:
        known = base64.b64encode(f"ada:{PLANTED}".encode()).decode()
        if self.headers.get("Authorization") != f"Basic {known}":
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="code"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        super().do_GET()

    @override
    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def server(repository: Path) -> Iterator[str]:
    """The address of the repository, which asks for a password."""
    subprocess.run(["git", "-C", repository, "update-server-info"], check=True)
    handler = partial(Guarded, directory=str(repository.parent))
    made = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=made.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{made.server_port}/project.git/.git"
    made.shutdown()
    made.server_close()


async def test_a_secret_opens_repositories_and_the_command_does_not_have_it(
    client: AsyncClient, server: str
) -> None:
    values = {"username": "ada", "password": PLANTED}
    await client.put_secret("forge", "project/vision", values, type="password")
    code = {"git": server, "revision": "main", "secret": "forge"}
    other = {"git": server, "revision": "first", "secret": "forge", "destination": "lib/tool"}
    job, output = await ran(client, command=WHOLE, code=code, repositories=[other])
    assert (job.status.phase, output) == ("succeeded", "second\nfirst\n0\n")
    job, output = await ran(client, command=["true"], code={"git": server})
    assert job.status.phase == "failed"
    assert PLANTED not in output
    assert "could not read Username" in output


async def test_a_secret_that_is_not_there_is_refused(client: AsyncClient) -> None:
    code = {"git": "https://host/x", "secret": "nothing"}
    body = {"project": "vision", "name": "a", "command": ["true"], "code": code}
    with pytest.raises(ApiError) as refused:
        await client.create_workload(body)
    assert "code.secret" in str(refused.value)
    await client.put_secret("token", "project/vision", {"other": "x"})
    with pytest.raises(ApiError) as refused:
        await client.create_workload(body | {"code": {**code, "secret": "token"}})
    assert "`password` or `ssh-key`" in str(refused.value)


def fetch(folder: Path, url: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the program that fetches, with a git program that only notes how it calls ssh."""
    (folder / "bin").mkdir()
    told = folder / "bin/ssh"
    told.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > told\nstat -c %a "$2" >> told\n'
                    'cat "$2" >> told\nexit 1\n')  # fmt: skip
    told.chmod(0o755)
    program = folder / "code.py"
    program.write_bytes(FETCH_PROGRAM.read_bytes())
    asked = [{"git": url, "revision": "", "number": 0, "secret": "x"}]
    (folder / "code.json").write_text(json.dumps(asked))
    environment = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder), **variables}
    return subprocess.run(
        [sys.executable, str(program), "true"],
        cwd=folder, env=environment, check=False, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("hosts", ["", "forge.example.org ssh-ed25519 AAAA"])
def test_ssh_gets_the_key_alone(tmp_path: Path, hosts: str) -> None:
    given = {"CARREL_GIT_0_PRIVATE_KEY": "the-key", "CARREL_GIT_0_KNOWN_HOSTS": hosts}
    ended = fetch(tmp_path, "git@forge.example.org:team/project.git", **given)
    assert ended.returncode == 125, ended
    told = (tmp_path / "told").read_text().splitlines()
    assert told[-2:] == ["600", "the-key"]
    assert f"-oStrictHostKeyChecking={'yes' if hosts else 'accept-new'}" in told
    assert not Path(told[1]).exists(), "the key is gone"


def test_a_password_travels_encrypted_only(tmp_path: Path) -> None:
    ended = fetch(tmp_path, "http://forge.example.org/x.git", CARREL_GIT_0_PASSWORD=PLANTED)
    assert ended.returncode == 125
    assert "https:// only" in ended.stderr
    assert PLANTED not in ended.stderr
