"""etcd, kube-apiserver and kube-controller-manager on loopback, with tokens of one run.

Ports are chosen by the system and held by nobody for a moment; a program that finds its port taken
ends, and the whole is tried again.
"""

import json
import secrets
import socket
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from k8s.cluster.records import Record

READY_SECONDS: Final = 120.0
TRIES: Final = 3
Process = subprocess.Popen[bytes]
_PAUSE_SECONDS: Final = 0.1
_ANSWER_SECONDS: Final = 10.0


class NotReady(Exception):  # noqa: N818 - an outcome to try again on
    """A program ended, or did not answer in time; the message has the end of its log."""


class Refused(Exception):  # noqa: N818 - an answer
    """The API server refused a request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane.

    Attributes:
        url: of the API server, ``https://127.0.0.1:<port>``.
        authority: file with its certificate.
        admin_token: of a user in ``system:masters``.
    """

    url: str
    authority: Path
    admin_token: str

    def get(self, path: str) -> Any:
        """What the API server answers to a GET; see ``ask``."""
        return self.ask("GET", path)

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """A request as the admin; JSON in and out, text where the answer is none.

        Raises ``Refused``, and ``OSError`` when the server does not answer.
        """
        trusted = ssl.create_default_context(cafile=str(self.authority))
        connection = HTTPSConnection(
            self.url.removeprefix("https://"), timeout=_ANSWER_SECONDS, context=trusted
        )
        headers = {
            "Authorization": f"Bearer {self.admin_token}",
            "Content-Type": "application/json",
        }
        with closing(connection):
            sent = None if body is None else json.dumps(body).encode()
            connection.request(method, path, body=sent, headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise Refused(answer.status, text)
        return json.loads(text) if text.startswith("{") else text

    def kubeconfig(self, to: Path) -> Path:
        """Write a configuration for the admin; readable by nobody else."""
        parts = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [
                {
                    "name": "test",
                    "cluster": {"server": self.url, "certificate-authority": str(self.authority)},
                }
            ],
            "users": [{"name": "admin", "user": {"token": self.admin_token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        to.touch(mode=0o600)
        to.write_text(json.dumps(parts))
        return to


def start(programs: Mapping[str, Path], record: Record) -> ControlPlane:
    """Start all three and wait until the API server is ready. Raises ``NotReady``."""
    for attempt in range(TRIES):
        folder = record.folder / f"try-{attempt}"
        folder.mkdir()
        try:
            return _start(programs, record, folder)
        except NotReady:
            if attempt == TRIES - 1:
                raise
    raise AssertionError


def _start(programs: Mapping[str, Path], record: Record, folder: Path) -> ControlPlane:
    clients, peers, secure = (_free_port() for _ in range(3))
    _run_etcd(programs["etcd"], record, folder, clients, peers)
    key = _service_account_key(folder)
    token = secrets.token_urlsafe(24)
    tokens = folder / "tokens.csv"
    tokens.touch(mode=0o600)
    tokens.write_text(f'{token},admin,admin,"system:masters"\n')
    server = _run(
        record,
        folder,
        programs["kube-apiserver"],
        f"--etcd-servers=http://127.0.0.1:{clients}",
        "--bind-address=127.0.0.1",
        f"--secure-port={secure}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={tokens}",
        "--authorization-mode=Node,RBAC",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged",
    )
    plane = ControlPlane(
        f"https://127.0.0.1:{secure}", folder / "certificates" / "apiserver.crt", token
    )
    _wait(lambda: plane.get("/readyz") == "ok", server, folder / "kube-apiserver.log")
    manager = _run(
        record,
        folder,
        programs["kube-controller-manager"],
        f"--kubeconfig={plane.kubeconfig(folder / 'admin.json')}",
        "--bind-address=127.0.0.1",
        f"--secure-port={_free_port()}",
        f"--cert-dir={folder / 'manager'}",
        f"--service-account-private-key-file={key}",
        f"--root-ca-file={plane.authority}",
        "--use-service-account-credentials",
        "--leader-elect=false",
    )
    account = "/api/v1/namespaces/default/serviceaccounts/default"
    _wait(lambda: bool(plane.get(account)), manager, folder / "kube-controller-manager.log")
    return plane


def _run_etcd(program: Path, record: Record, folder: Path, clients: int, peers: int) -> None:
    here = f"http://127.0.0.1:{clients}"
    among = f"http://127.0.0.1:{peers}"
    _run(
        record,
        folder,
        program,
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={here}",
        f"--advertise-client-urls={here}",
        f"--listen-peer-urls={among}",
        f"--initial-advertise-peer-urls={among}",
        f"--initial-cluster=default={among}",
    )


def _run(record: Record, folder: Path, program: Path, *options: str) -> Process:
    return record.start([str(program), *options], folder / f"{program.name}.log")


def _wait(ready: Any, process: Process, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            if ready():
                return
        except (OSError, Refused):
            pass  # not there yet, or not authorised yet: asked again until the deadline
        if process.poll() is not None or time.monotonic() > deadline:
            how = "ended" if process.poll() is not None else "did not get ready"
            raise NotReady(f"{log.stem} {how}: {_end_of(log)}")
        time.sleep(_PAUSE_SECONDS)


def _end_of(log: Path) -> str:
    lines: Sequence[str] = log.read_text(errors="replace").splitlines()
    return "\n".join(lines[-20:])


def _service_account_key(folder: Path) -> Path:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    to = folder / "service-accounts.key"
    to.touch(mode=0o600)
    to.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return to


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
