"""What a user's program may do to the browser of whoever looks at it: nothing beyond its origin."""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import requests
from typing_extensions import override

from attacks.person import Person
from benchmarks.ports import free_port
from carrel.errors import ApiError
from carrel.models import Workload
from e2e.stack import People, Stack, until

SERVER = r"""
import http.server, json, os, sys

PAGE = '''<!doctype html><title>begun</title><pre></pre><script>
const asked = new URLSearchParams(location.search), found = {cookie: document.cookie};
const hub = asked.get("hub"), tokens = hub + "/hub/api/users/admin/tokens";
async function attempt(name, work) {
  try { found[name] = await work(); } catch (error) { found[name] = "refused"; }
}
(async () => {
  const all = {credentials: "include"};
  await attempt("home", async () => (await fetch(hub + "/hub/home", all)).text());
  await attempt("token", async () => (await fetch(tokens, {...all, method: "POST",
    headers: {"Content-Type": "application/json"}, body: '{"note": "stolen"}'})).status);
  await attempt("form", async () => (await fetch(tokens, {...all, method: "POST",
    mode: "no-cors", body: '{"note": "stolen"}'})).type);
  await attempt("server", async () => (await fetch(asked.get("server"), all)).text());
  await attempt("neighbour", async () => (await fetch(asked.get("neighbour"), all)).text());
  await attempt("worker", async () => {
    await navigator.serviceWorker.register("/worker.js"); return "registered"; });
  document.querySelector("pre").textContent = JSON.stringify(found);
  document.title = "done";
})();
</script>'''

class Page(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print("asked", json.dumps([self.path, list(self.headers.items())]), flush=True)
        script = self.path.startswith("/worker.js")
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if script else "text/html")
        self.send_header("Service-Worker-Allowed", "/")
        self.send_header("Set-Cookie", "jupyterhub-session-id=forged; Path=/; Domain=localhost")
        self.end_headers()
        self.wfile.write(b"" if script else PAGE.encode())
    def log_message(self, *_):
        pass

where = os.environ.get("CARREL_HOST", "127.0.0.1")
port = int(sys.argv[1] if len(sys.argv) > 1 else os.environ["PORT"])
print("listens", flush=True)
http.server.ThreadingHTTPServer((where, port), Page).serve_forever()
"""


def asked_of(person: Person, made: Workload) -> list[tuple[str, dict[str, str]]]:
    """The requests that a program got: path and headers."""
    lines = [line for line in person.logs(made).splitlines() if line.startswith("asked ")]
    told = [json.loads(line.removeprefix("asked ")) for line in lines]
    return [(path, {name.lower(): value for name, value in headers}) for path, headers in told]


def serving(person: Person, *arguments: str, **fields: Any) -> Workload:
    """A program of a person's that listens."""
    made = person.submit(["python", "-c", SERVER, *arguments], **fields)
    person.running(made)
    until(lambda: "listens" in person.logs(made), seconds=60, every=0.2, why="it listens")
    return made


def origin(stack: Stack, made: Workload) -> str:
    """Of a workload's first route."""
    return f"http://{made.name}--{made.project}.{urlsplit(stack.url).netloc}"


@pytest.fixture(scope="module")
def evil(ada: Person) -> Iterator[Workload]:
    """Ada's page, open to everyone."""
    made = serving(ada, name="evil", routes=[{"access": "everyone"}])
    yield made
    ada.delete(made)


@pytest.fixture(scope="module")
def honest(grace: Person) -> Iterator[Workload]:
    """Grace's program, open to everyone."""
    made = serving(grace, name="honest", routes=[{"access": "everyone"}])
    yield made
    grace.delete(made)


@pytest.mark.browser
def test_a_page_that_an_admin_visits_reaches_nothing_of_the_admins(
    stack: Stack,
    ada: Person,
    grace: Person,
    admin: Person,
    evil: Workload,
    honest: Workload,
    browsers: People,
) -> None:
    page = browsers.page("admin")
    neighbour = origin(stack, honest)
    page.goto(f"{neighbour}/of-admin")
    server = f"http://ada.{urlsplit(stack.url).netloc}/user/ada/api"
    query = f"hub={quote(stack.url)}&server={quote(server)}&neighbour={quote(neighbour)}/stolen"
    page.goto(f"{stack.url}/services/gateway/vision/evil/?{query}")
    page.wait_for_function("document.title == 'done'")
    assert page.url.startswith(f"{origin(stack, evil)}/?hub=")
    found = json.loads(page.locator("pre").inner_text())
    assert found.pop("form") in ("opaque", "refused")
    assert found == {
        "cookie": "",
        "home": "refused",
        "token": "refused",
        "server": "refused",
        "neighbour": "refused",
        "worker": "refused",
    }
    page.close()
    notes = [one["note"] for one in admin.hub("GET", "/users/admin/tokens").json()["api_tokens"]]
    assert "stolen" not in notes
    paths = [path for path, _ in asked_of(grace, honest)]
    assert "/of-admin" in paths
    assert "/stolen" not in paths
    for _, headers in asked_of(ada, evil):
        assert "authorization" not in headers
        assert "jupyterhub" not in headers.get("cookie", "")
        assert "carrel" not in headers.get("cookie", "")
        assert headers["x-forwarded-user"] == "admin"


def test_on_the_hubs_origin_an_answer_has_no_origin_of_its_own(
    stack: Stack, ada: Person, evil: Workload
) -> None:
    """Its owner's, too: programs ask by path, and no page comes without the sandbox."""
    address = f"{stack.url}/services/gateway/vision/{evil.name}/of-its-owner"
    headers = {"Authorization": f"Bearer {ada.token}", "X-Forwarded-User": "admin"}
    answer = requests.get(address, headers=headers, timeout=30)
    assert answer.status_code == 200
    assert "sandbox" in answer.headers["Content-Security-Policy"]
    assert "allow-same-origin" not in answer.headers["Content-Security-Policy"]
    assert "Service-Worker-Allowed" not in answer.headers
    assert "Set-Cookie" not in answer.headers
    asked = until(
        lambda: [seen for path, seen in asked_of(ada, evil) if path.endswith("/of-its-owner")],
        seconds=30,
        why="the request is in its log",
    )
    assert asked[-1]["x-forwarded-user"] == "ada"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("routes", [{"port": 0}, {"name": "evil", "port": 23456, "access": "everyone"}]),
        ("image", "registry.invalid/page"),
        ("files", {"tensorboard.py": "x"}),
        ("volumes", [{"source": "/tmp", "destination": "runs"}]),
        ("command", ["python"]),
        ("working_dir", "/tmp"),
        ("environment", {"PYTHONPATH": "/tmp"}),
        ("secret_environment", {"PYTHONPATH": "/tmp"}),
    ],
)
def test_a_tensorboard_lends_its_place_to_no_other_program(
    ada: Person, evil: Workload, field: str, value: Any
) -> None:
    body = {
        "kind": "tensorboard",
        "name": "tb",
        "project": "vision",
        "tensorboard": {"jobs": [evil.name]},
        field: value,
    }
    with pytest.raises(ApiError) as refused:
        ada.client.create_workload(body)
    assert (refused.value.status, refused.value.code) == (422, "own_program")
    assert f"`{field}`" in str(refused.value)


@pytest.mark.parametrize(
    "query",
    ["at=evil.org&state=s", "at=x--y.evil.org%23&state=s", "at=ada&state=s", "at=&state=s"],
)
def test_no_pass_is_handed_to_another_site(stack: Stack, grace: Person, query: str) -> None:
    answer = grace.session.get(
        f"{stack.url}/services/gateway/enter?{query}",
        headers={"Accept": "text/html"},
        timeout=30,
    )
    assert answer.status_code == 400
    assert urlsplit(answer.url).netloc == urlsplit(stack.url).netloc


def test_an_invented_pass_lets_nobody_in(stack: Stack, evil: Workload) -> None:
    netloc = urlsplit(origin(stack, evil)).netloc
    answer = requests.get(f"{stack.url}/.carrel/enter?pass=x", headers={"Host": netloc}, timeout=30)
    assert answer.status_code == 400
    assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize("host", ["ada.{}", "127.0.0.1:1", "evil.org"])
@pytest.mark.parametrize("path", ["/hub/login", "/hub/home", "/services/console/"])
def test_pages_of_the_hub_are_shown_at_its_own_host_alone(
    stack: Stack, host: str, path: str
) -> None:
    netloc = urlsplit(stack.url).netloc
    answer = requests.get(
        f"{stack.url}{path}",
        headers={"Host": host.format(netloc), "Accept": "text/html"},
        allow_redirects=False,
        timeout=30,
    )
    assert answer.status_code == 302
    assert answer.headers["Location"] == f"{stack.url}{path}"
    assert "Set-Cookie" not in answer.headers


class _Leads(BaseHTTPRequestHandler):
    """A page of another site that leads its visitor away."""

    to = ""

    def do_GET(self) -> None:
        """Of ``BaseHTTPRequestHandler``."""
        body = f"<script>location = {json.dumps(self.to)}</script>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @override
    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def workspace(grace: Person) -> Iterator[None]:
    """Grace's, while it runs."""
    assert grace.hub("POST", "/users/grace/server").status_code in (201, 202)
    until(lambda: _ready(grace), seconds=180, every=0.5, why="the workspace is ready")
    yield
    grace.hub("DELETE", "/users/grace/server")
    until(lambda: not _servers(grace), seconds=60, every=0.5, why="the workspace has ended")


def _servers(person: Person) -> dict[str, Any]:
    found: dict[str, Any] = person.hub("GET", f"/users/{person.name}").json()["servers"]
    return found


def _ready(person: Person) -> bool:
    return bool(_servers(person).get("", {}).get("ready"))


@pytest.mark.browser
@pytest.mark.usefixtures("workspace")
def test_another_site_opens_no_foreign_program_through_ones_workspace(
    stack: Stack, ada: Person, browsers: People
) -> None:
    port = free_port()
    listener = serving(ada, str(port))
    target = f"http://grace.{urlsplit(stack.url).netloc}/user/grace/proxy/{port}/"
    _Leads.to = target
    with ThreadingHTTPServer(("127.0.0.1", 0), _Leads) as site:
        thread = threading.Thread(target=site.serve_forever)
        thread.start()
        page = browsers.page("grace")
        page.goto(f"http://127.0.0.1:{site.server_port}/")
        page.wait_for_url(target)
        page.get_by_text("Another site led you here").wait_for()
        page.get_by_role("link").click()
        page.wait_for_url(re.compile("login|authorize|proxy"))
        site.shutdown()
        thread.join()
    page.goto(target)
    assert "querySelector" not in page.content()
    page.close()
    assert asked_of(ada, listener) == []
    ada.delete(listener)
