"""Tools beside JupyterLab in a real server: VS Code where it is installed, one's own ports."""

import http.cookiejar
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from carrel.testing import FakeScheduler
from contract.notebook.lab import TOKEN, Lab, running_lab
from contract.notebook.test_activity import told

REACHING = {"Service-Worker-Allowed": "/", "Clear-Site-Data": '"cookies"'}
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


class Tells(BaseHTTPRequestHandler):
    """Answers with the headers that it was asked with, and with headers that reach further."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
        self.send_response(200)
        for name, value in REACHING.items():
            self.send_header(name, value)
        self.send_header("Set-Cookie", "mine=1; Path=/hub/; Domain=localhost")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - named by the standard library


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A program of the workspace's own."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Tells) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def ask(lab: Lab, path: str, headers: dict[str, str], method: str = "GET") -> tuple[int, Any, Any]:
    """Status, headers and body of an answer."""
    request = urllib.request.Request(f"{lab.url}{path}", headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


@pytest.mark.parametrize("accept", ["text/html", "text/event-stream"])
def test_a_program_on_a_port_learns_no_secret_and_reaches_no_further(
    lab: Lab, port: int, accept: str
) -> None:
    given = {"Authorization": f"token {TOKEN}", "Cookie": "jupyterhub-user-ada=x; _xsrf=y"}
    status, headers, body = ask(lab, f"proxy/{port}/page", {**given, "Accept": accept})
    assert status == 200
    asked = json.loads(body)
    assert not {"authorization", "cookie", "x-xsrftoken"} & asked.keys()
    assert asked["x-forwarded-prefix"] == f"/user/ada/proxy/{port}"
    assert not REACHING.keys() & set(headers.keys())
    cookies = [one for one in headers.get_all("Set-Cookie") if not one.startswith("username-")]
    assert cookies == [f"mine=1; Path=/user/ada/proxy/{port}/"]
    assert "sandbox allow-scripts" in ",".join(headers.get_all("Content-Security-Policy"))


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_page_of_another_site_opens_no_port_with_ones_sign_in(
    lab: Lab, port: int, site: str, method: str
) -> None:
    """Not even the sign-in begins; a link on the page goes on when a person wants it."""
    status, headers, body = ask(lab, f"proxy/{port}/page", {"Sec-Fetch-Site": site}, method)
    assert status == 403
    assert f'href="/user/ada/proxy/{port}/page"' in body
    assert "Set-Cookie" not in headers
    assert ask(lab, "vscode/", {"Sec-Fetch-Site": site}, method)[0] == 403


def test_without_the_browsers_word_the_page_it_came_from_counts(lab: Lab, port: int) -> None:
    here = f"{lab.url}lab"
    cookies = signed_in(lab)
    assert ask(lab, f"proxy/{port}/", {"Cookie": cookies})[0] == 403
    assert ask(lab, f"proxy/{port}/", {"Cookie": cookies, "Referer": "http://evil.test/"})[0] == 403
    assert ask(lab, f"proxy/{port}/", {"Cookie": cookies, "Referer": here})[0] == 200
    assert ask(lab, f"proxy/{port}/", {"Cookie": cookies, "Sec-Fetch-Site": "none"})[0] == 200


def signed_in(lab: Lab) -> str:
    """The cookies of a browser that opened the server with its token."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    opener.open(lab.page(), timeout=60).close()
    return "; ".join(f"{one.name}={one.value}" for one in jar)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can listen as another account")
def test_a_program_of_another_account_is_not_reached(lab: Lab) -> None:
    program = (
        "import encodings.idna, http.server, os; os.setuid(65534);"
        "s = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler);"
        "print(s.server_port, flush=True); s.serve_forever()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd="/") as they:
        assert they.stdout is not None
        theirs = int(they.stdout.readline())
        try:
            given = {"Authorization": f"token {TOKEN}"}
            status, _, body = ask(lab, f"proxy/{theirs}/", given)
            assert (status, "another account" in body) == (403, True)
            assert ask(lab, f"proxy/localhost:{theirs}/", given)[0] == 404
        finally:
            they.terminate()


def test_the_launcher_offers_what_is_installed(lab: Lab) -> None:
    offered = lab.ask("server-proxy/servers-info")["server_processes"]
    assert [(one["name"], one["launcher_entry"]["enabled"]) for one in offered] == [
        ("vscode", True)
    ]
