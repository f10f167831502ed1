"""Traefik as ``carrel up`` starts it: what strangers meet at the public port."""

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any, ClassVar, Final

import aiohttp
import msgspec
import psutil
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typing_extensions import override

from benchmarks.ports import free_ports
from carrel_hub.front.routes import UNAVAILABLE, RoutesFile, static_part
from carrel_hub.front.rules import rule
from carrel_hub.front.traefik import PUBLIC, Listening, Tls, configuration, find_traefik, from_file
from carrel_hub.product import hashed
from carrel_hub.settings import InstallationSettings, Ports
from carrel_hub.up.parts import ProcessPart, traefik_file, write_traefik
from carrel_hub.up.ports import Gate
from carrel_hub.up.probes import Watchdog, routes_loaded
from carrel_hub.up.supervisor import Supervisor

TIMEOUT_SECONDS: Final = 120.0
KEY: Final = "the-key-of-the-proxy"
SLOW_SECONDS: Final = 2


class Target(BaseHTTPRequestHandler):
    """Says which server it is and what it was asked."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[dict[str, str]]] = []

    def do_GET(self) -> None:
        """Of ``BaseHTTPRequestHandler``."""
        self.seen.append(dict(self.headers))
        text = f"{self.connection.getsockname()[1]} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    @override
    def log_message(self, *_: Any) -> None: ...


class Front:
    """Traefik with two targets: ``one`` for everything else, ``two`` for ada."""

    def __init__(self, folder: Path, *, tls: Tls | None = None) -> None:
        self.servers = [ThreadingHTTPServer(("127.0.0.1", 0), Target) for _ in range(2)]
        for server in self.servers:
            Thread(target=server.serve_forever, daemon=True).start()
        self.one, self.two = (server.server_port for server in self.servers)
        self.port, self.internal, self.nowhere = free_ports(3)
        self.access_log = folder / "access.log"
        self.routes = folder / "routes"
        self.routes.mkdir()
        listening = Listening(
            public=f"127.0.0.1:{self.port}",
            internal=f"127.0.0.1:{self.internal}",
            tls=tls,
            access_log=self.access_log,
            request_seconds=SLOW_SECONDS,
        )
        static = folder / "traefik.yaml"
        static.write_bytes(msgspec.json.encode(configuration(listening, from_file(self.routes))))
        self._told(tls)
        with (folder / "traefik.log").open("wb") as log:
            self.process = subprocess.Popen(
                [find_traefik(), f"--configFile={static}"], stdout=log, stderr=log, cwd=folder
            )
        self.plain_port = 0 if tls is None else tls.plain_port
        self.scheme = "http" if tls is None else "https"
        self._wait()

    def _told(self, tls: Tls | None) -> None:
        proxy: Any = SimpleNamespace(
            traefik_api_username="hub",
            traefik_api_hashed_password=hashed(KEY),
            traefik_entrypoint=PUBLIC,
            beside={},
            unavailable_url=f"http://127.0.0.1:{self.one}",
            tls_certificate="" if tls is None else str(tls.certificate),
            tls_key="" if tls is None else str(tls.key),
        )
        found = static_part(proxy)
        specs = {
            "/": self.one,
            "/user/ada/": self.two,
            "/user/ada/gone/": self.nowhere,
            "/user/a%60%29%20%7C%7C%20PathPrefix%28%60/": self.two,
            "ada.localhost/": self.two,
        }
        for number, (spec, port) in enumerate(specs.items()):
            text, priority = rule(spec)
            found["http"]["routers"][f"r{number}"] = {
                "rule": text,
                "priority": priority,
                "entryPoints": [PUBLIC],
                "service": f"s{number}",
                "middlewares": [UNAVAILABLE],
            }
            servers = [{"url": f"http://127.0.0.1:{port}"}]
            found["http"]["services"][f"s{number}"] = {"loadBalancer": {"servers": servers}}
        RoutesFile(self.routes / "routes.yaml").atomic_dump(found)

    def _wait(self) -> None:
        end = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < end:
            try:
                if self.get("/")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError("Traefik does not answer")

    def get(self, path: str, port: int = 0, /, **headers: str) -> tuple[int, str]:
        """Status and text."""
        address = f"{self.scheme}://127.0.0.1:{port or self.port}{path}"
        context = ssl._create_unverified_context() if self.scheme == "https" else None
        request = urllib.request.Request(address, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        for server in self.servers:
            server.shutdown()
            server.server_close()


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    running = Front(tmp_path_factory.mktemp("front"))
    yield running
    running.stop()


def test_the_longest_prefix_wins_also_without_its_slash(front: Front) -> None:
    assert front.get("/user/adam/") == (200, f"{front.one} /user/adam/")
    assert front.get("/user/ada/lab") == (200, f"{front.two} /user/ada/lab")
    assert front.get("/user/ada") == (200, f"{front.two} /user/ada")
    assert front.get("/", Host="ada.localhost") == (200, f"{front.two} /")


def test_the_name_of_a_server_takes_no_other_route(front: Front) -> None:
    assert front.get("/hub/home")[1] == f"{front.one} /hub/home"


def test_dots_and_slashes_lead_nowhere_else_than_the_target_reads(front: Front) -> None:
    assert front.get("/user/ada/../grace/x")[1] == f"{front.one} /user/grace/x"
    assert front.get("/user//ada/x")[1] == f"{front.two} /user/ada/x"
    # An encoded slash is no slash for both.
    assert front.get("/user%2Fada/x")[1] == f"{front.one} /user%2Fada/x"
    assert front.get("/user/ada/a%23b%25%3F.ipynb?q=1;2")[1] == (
        f"{front.two} /user/ada/a%23b%25%3F.ipynb?q=1%3B2"
    )


def test_what_does_not_answer_is_answered_for(front: Front) -> None:
    assert front.get("/user/ada/gone/x") == (503, f"{front.one} /services/gateway/unavailable")


def test_who_asks_cannot_be_made_up(front: Front) -> None:
    forged: dict[str, str] = {
        "X-Forwarded-For": "1.2.3.4",
        "X-Forwarded-Proto": "https",
        "X_Real_IP": "1.2.3.4",
    }
    Target.seen.clear()
    front.get("/", 0, **forged)
    (seen,) = Target.seen
    assert seen["X-Forwarded-For"] == "127.0.0.1"
    assert seen["X-Forwarded-Proto"] == "http"
    assert "1.2.3.4" not in seen.values()


def test_the_api_asks_for_the_hubs_key(front: Front) -> None:
    wrong = "Basic " + b64encode(b"hub:wrong").decode()
    right = "Basic " + b64encode(f"hub:{KEY}".encode()).decode()
    assert front.get("/api/http/routers", front.internal)[0] == 401
    assert front.get("/api/http/routers", front.internal, Authorization=wrong)[0] == 401
    assert front.get("/api/http/routers", front.internal, Authorization=right)[0] == 200
    # And not at all at the public port: there it is a path like any other.
    assert front.get("/api/rawdata", Authorization=right)[1] == f"{front.one} /api/rawdata"
    assert front.get("/dashboard/")[1] == f"{front.one} /dashboard/"


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx",
    ],
)
def test_a_request_that_never_ends_is_closed(front: Front, begun: bytes) -> None:
    with socket.create_connection(("127.0.0.1", front.port), timeout=SLOW_SECONDS * 10) as caller:
        caller.sendall(begun)
        while caller.recv(
            65536
        ):  # ends when Traefik hangs up; the socket's time-out fails the test
            pass


async def test_while_it_restarts_visitors_wait_and_nobody_gets_its_ports(
    front: Front, tmp_path: Path
) -> None:
    public, internal = free_ports(2)
    settings = InstallationSettings(
        state_dir=tmp_path,
        port=public,
        ports=Ports(hub=1, proxy_api=internal, scheduler=3, console=4, gateway=5),
        request_seconds=1200,
    )
    settings.hub_dir.mkdir()
    write_traefik(settings)
    assert '"readTimeout":"1200s"' in traefik_file(settings).read_text()
    shutil.copy(front.routes / "routes.yaml", settings.routes_dir)
    seen: list[int] = []
    with ExitStack() as stack:
        sockets = {
            name: stack.enter_context(socket.create_server(("127.0.0.1", port)))
            for name, port in (("public", public), ("internal", internal))
        }
        command = [find_traefik(), f"--configFile={traefik_file(settings)}"]
        part = ProcessPart("proxy", "Proxy", command, tmp_path / "log", os.environ, sockets)
        async with aiohttp.ClientSession() as session:
            supervisor = Supervisor()
            gate = Gate([sockets["public"]], routes_loaded(session, settings))
            supervisor.add_gate(part, gate)
            try:
                await supervisor.start(part)
                supervisor.keep_running(part, Watchdog(lambda _: asyncio.sleep(0.1, result=True)))
                seen.append((await asyncio.to_thread(front.get, "/", public))[0])
                for _ in range(3):
                    children = psutil.Process().children()
                    [process] = [one for one in children if str(tmp_path) in "".join(one.cmdline())]
                    process.kill()
                    with pytest.raises(OSError, match="in use"):
                        socket.create_server(("127.0.0.1", public))
                    while True:
                        try:
                            seen.append((await asyncio.to_thread(front.get, "/", public))[0])
                            break
                        except OSError:  # the process that was killed had taken it, or was about to
                            continue
            finally:
                await supervisor.stop()
    assert seen == [200] * 4


def test_a_head_that_is_too_large_is_refused(front: Front) -> None:
    assert front.get("/", Cookie="x" * 100_000)[0] == 431


def test_the_access_log_has_no_secret(front: Front) -> None:
    front.get("/user/ada/logged?token=s3cret", Authorization="token s3cret", Cookie="c=s3cret")
    end = time.monotonic() + TIMEOUT_SECONDS
    while "/user/ada/logged" not in front.access_log.read_text():
        assert time.monotonic() < end
        time.sleep(0.05)
    text = front.access_log.read_text()
    assert "s3cret" not in text
    lines = [json.loads(line) for line in text.splitlines()]
    (found,) = [line for line in lines if line.get("RequestPath") == "/user/ada/logged"]
    assert (found["RequestMethod"], found["DownstreamStatus"]) == ("GET", 200)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    folder = tmp_path_factory.mktemp("secured")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "carrel.test")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    tls = Tls(certificate=folder / "c.pem", key=folder / "k.pem", plain_port=free_ports(1)[0])
    (folder / "c.pem").write_bytes(certificate.public_bytes(pem))
    (folder / "k.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    running = Front(folder, tls=tls)
    yield running
    running.stop()


def _handshake(port: int, version: ssl.TLSVersion) -> tuple[bytes, str | None]:
    context = ssl._create_unverified_context()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.set_alpn_protocols(["h2", "http/1.1"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="carrel.test") as caller,
    ):
        return caller.getpeercert(binary_form=True) or b"", caller.selected_alpn_protocol()


def test_tls_has_our_certificate_and_http_2(secured: Front) -> None:
    certificate, protocol = _handshake(secured.port, ssl.TLSVersion.TLSv1_3)
    assert "carrel.test" in x509.load_der_x509_certificate(certificate).subject.rfc4514_string()
    assert protocol == "h2"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1")
def test_old_tls_is_refused(secured: Front) -> None:
    _handshake(secured.port, ssl.TLSVersion.TLSv1_2)
    with pytest.raises(ssl.SSLError):
        _handshake(secured.port, ssl.TLSVersion.TLSv1_1)


def test_plain_http_is_sent_to_https(secured: Front) -> None:
    with socket.create_connection(("127.0.0.1", secured.plain_port), timeout=20) as caller:
        caller.sendall(b"GET /hub/home HTTP/1.0\r\nHost: gpu.example.org\r\n\r\n")
        text = caller.recv(4096).decode()
    assert text.split()[1] in {"302", "307", "308"}
    assert f"Location: https://gpu.example.org:{secured.port}/hub/home" in text
