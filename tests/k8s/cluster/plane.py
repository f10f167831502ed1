"""A control plane as its users see it: where it is, who may enter, and requests to it."""

import json
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from http import HTTPStatus
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any, Final

_ANSWER_SECONDS: Final = 60.0


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
        node_tokens: of nodes that may join, by name.
        service: address of the API server within the cluster.
        issuer: file with the certificate of whoever vouches for it to kubelets.
        certificate: of the admin with its key, where there is no token.
    """

    url: str
    authority: Path
    admin_token: str
    node_tokens: Mapping[str, str] = field(default_factory=dict)
    service: str = ""
    issuer: Path = Path()
    certificate: tuple[Path, Path] | None = None

    def get(self, path: str) -> Any:
        """What the API server answers to a GET; see ``ask``."""
        return self.ask("GET", path)

    def ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, user: str = ""
    ) -> Any:
        """A request as the admin, or as ``user``; JSON in and out, text where the answer is none.

        Raises ``Refused``, and ``OSError`` when the server does not answer.
        """
        trusted = ssl.create_default_context(cafile=str(self.authority))
        if self.certificate:
            trusted.load_cert_chain(*self.certificate)
        connection = HTTPSConnection(
            self.url.removeprefix("https://"), timeout=_ANSWER_SECONDS, context=trusted
        )
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind} | ({"Impersonate-User": user} if user else {})
        if self.admin_token:
            headers["Authorization"] = f"Bearer {self.admin_token}"
        with closing(connection):
            sent = None if body is None else json.dumps(body).encode()
            connection.request(method, path, body=sent, headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise Refused(answer.status, text)
        return json.loads(text) if text.startswith("{") else text

    def kubeconfig(self, to: Path, token: str = "") -> Path:
        """Write a configuration for the admin, or another's token; readable by nobody else."""
        user: dict[str, str] = {"token": token or self.admin_token}
        if self.certificate and not token:
            certificate, key = map(str, self.certificate)
            user = {"client-certificate": certificate, "client-key": key}
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
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }
        to.touch(mode=0o600)
        to.write_text(json.dumps(parts))
        return to
