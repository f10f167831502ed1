"""Images of a registry that asks for credentials: whose are used, and who may use the image."""

import base64
import hashlib
import io
import json
import ssl
import tarfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typing_extensions import override

from carrel_scheduler.engines.contract import EngineError, RegistryLogin
from carrel_scheduler.engines.local.capabilities import sandbox_programs
from carrel_scheduler.engines.local.images.store import ImageStore, PullTicket, StoreSettings
from contract.engine.local_engines import AS_ROOT

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(not AS_ROOT, reason="images need root"),
]
HOST = "registry.example.org"
PLANTED = "planted-r3gistry"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of the registry, signed by itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)]), datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "public.pem", folder / "private.pem"
    public.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return public, private


def image() -> dict[str, bytes]:
    """What a registry has of an image, by the last part of its paths."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as file:
        member = tarfile.TarInfo("hello")
        file.addfile(member, io.BytesIO())
    config = b'{"config": {}}'
    blobs = {
        f"sha256:{hashlib.sha256(one).hexdigest()}": one for one in (config, archive.getvalue())
    }
    told = [{"digest": digest, "size": len(one)} for digest, one in blobs.items()]
    manifest = {"schemaVersion": 2, "config": told[0], "layers": told[1:]}
    return {**blobs, "v1": json.dumps(manifest).encode()}


@pytest.fixture
def asked() -> list[str]:
    """The authorization of each request."""
    return []


@pytest.fixture
def port(tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A registry with TLS that wants ada's password."""
    found, basic = image(), base64.b64encode(f"ada:{PLANTED}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            given = self.headers.get("Authorization", "")
            asked.append(given)
            data = found.get(self.path.rpartition("/")[2], b"")
            open_to = given == f"Basic {basic}"
            self.send_response(200 if open_to else 401)
            if not open_to:
                data = b""
                self.send_header("WWW-Authenticate", 'Basic realm="registry"')
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        @override
        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    for each in (tmp_path, *tmp_path.parents[:-2]):
        each.chmod(0o755)
    public, private = certificate(tmp_path)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(public))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


def test_credentials_of_a_user_pull_for_that_user_alone(
    tmp_path: Path, port: int, asked: list[str]
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost {HOST}\n")
    files = ((hosts, Path("/etc/hosts")),)
    name = f"{HOST}:{port}/team/tool:v1"
    store = ImageStore(tmp_path / "images", lambda: sandbox_programs()[0], StoreSettings())
    right = RegistryLogin(server=f"{HOST}:{port}", username="ada", password=PLANTED)
    other = RegistryLogin(server="other.example.org", username="ada", password=PLANTED)

    def get(uid: int, *logins: RegistryLogin) -> Path:
        return store.get(
            name, PullTicket(uid=uid, files=files, logins=logins), lambda *_: None
        ).folder

    with pytest.raises(EngineError, match="asks for credentials"):
        get(1001, other)
    assert not any(asked), "a registry is told its own credentials alone"
    assert (get(1001, other, right) / "hello").exists()
    with pytest.raises(EngineError) as refused:
        get(1002)
    assert PLANTED not in str(refused.value)
    wrong = RegistryLogin(server=f"{HOST}:{port}", username="ada", password="guess")
    with pytest.raises(EngineError):
        get(1002, wrong)
    assert (get(1002, right) / "hello").exists()
