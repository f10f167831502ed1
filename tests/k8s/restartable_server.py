"""An API server of one test, which may kill it, compact its etcd, and start it with other options.

It is etcd and kube-apiserver without controllers, so it is ready in seconds. It keeps its ports
while it is down.
"""

import json
import secrets
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from benchmarks.ports import free_port
from k8s.cluster.plane import ControlPlane
from k8s.cluster.records import Record
from k8s.cluster.waiting import Process, wait_for

ANSWER_SECONDS = 60.0


class RestartableServer:
    """etcd and kube-apiserver in a record's folder, on loopback.

    Attributes:
        plane: sends requests as the admin.
        worker_token: of a user ``worker``, who may do nothing yet and is in no group.
    """

    def __init__(self, programs: Mapping[str, Path], record: Record) -> None:
        self._programs, self._record = programs, record
        self._folder = record.folder
        self._etcd = f"http://127.0.0.1:{free_port()}"
        self._port = free_port()
        self._token = secrets.token_urlsafe(24)
        self.worker_token = secrets.token_urlsafe(24)
        self._server: Process | None = None
        self._options: tuple[str, ...] = ()
        self.plane = ControlPlane(
            f"https://127.0.0.1:{self._port}",
            self._folder / "certificates" / "apiserver.crt",
            self._token,
        )
        self._prepare()

    def _prepare(self) -> None:
        tokens = self._folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(
            f'{self._token},admin,admin,"system:masters"\n{self.worker_token},worker,worker\n'
        )
        accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self._folder / "accounts.key").write_bytes(
            accounts.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        peers = f"http://127.0.0.1:{free_port()}"
        etcd = self._record.start(
            [
                str(self._programs["etcd"]),
                f"--data-dir={self._folder / 'etcd'}",
                "--unsafe-no-fsync",
                f"--listen-client-urls={self._etcd}",
                f"--advertise-client-urls={self._etcd}",
                f"--listen-peer-urls={peers}",
                f"--initial-advertise-peer-urls={peers}",
                f"--initial-cluster=default={peers}",
            ],
            self._folder / "etcd.log",
        )
        wait_for(lambda: self.revision() > 0, etcd, self._folder / "etcd.log")

    def start(self, *options: str) -> None:
        """Start the API server, with options besides the usual; it has the same port always."""
        key = self._folder / "certificates" / "apiserver.key"
        log = self._folder / "kube-apiserver.log"
        accounts = self._folder / "accounts.key"
        self._options = options
        self._server = self._record.start(
            [
                str(self._programs["kube-apiserver"]),
                f"--etcd-servers={self._etcd}",
                "--bind-address=127.0.0.1",
                f"--secure-port={self._port}",
                f"--cert-dir={key.parent}",
                f"--token-auth-file={self._folder / 'tokens.csv'}",
                "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.96.0.0/24",
                f"--service-account-key-file={accounts}",
                f"--service-account-signing-key-file={accounts}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--disable-admission-plugins=ServiceAccount",
                *options,
            ],
            log,
        )
        wait_for(lambda: self.plane.get("/readyz") == "ok", self._server, log)

    def run_with(self, *options: str) -> None:
        """See that it runs with these options, and no others."""
        if options != self._options:
            self.kill()
            self.start(*options)

    def kill(self) -> None:
        """SIGKILL."""
        assert self._server is not None
        self._server.kill()
        self._server.wait()

    def revision(self) -> int:
        """The revision of etcd, which is the ``resourceVersion`` of the last write."""
        answer = self._ask_etcd("/v3/kv/range", {"key": "MA=="})
        return int(answer["header"]["revision"])

    def compact(self) -> None:
        """Forget every version but the last."""
        self._ask_etcd("/v3/kv/compaction", {"revision": str(self.revision()), "physical": True})

    def _ask_etcd(self, path: str, body: Mapping[str, Any]) -> Any:
        request = urllib.request.Request(f"{self._etcd}{path}", json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            return json.load(answer)
