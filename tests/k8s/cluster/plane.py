"""A control plane as its users see it: where it is, who may enter, and requests to it."""

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import urllib3
from urllib3.exceptions import HTTPError

_ANSWER_SECONDS: Final = 60.0


class Refused(Exception):  # noqa: N818 - an answer
    """The API server refused a request."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status, self.text = status, text


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
        """GET a path of the API server; see ``ask``."""
        return self.ask("GET", path)

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        user: str = "",
        groups: Sequence[str] = (),
    ) -> Any:
        """A request as the admin, or as ``user``; JSON in and out, text where the answer is none.

        Raises ``Refused``, and ``OSError`` when the server does not answer.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = urllib3.HTTPHeaderDict({"Content-Type": kind})
        if user:
            headers["Impersonate-User"] = user
        for group in groups:
            headers.add("Impersonate-Group", group)
        if self.admin_token:
            headers["Authorization"] = f"Bearer {self.admin_token}"
        sent = None if body is None else json.dumps(body)
        connections = _connections(self.url, self.authority, self.certificate)
        try:
            answer = connections.request(method, path, body=sent, headers=headers)
        except HTTPError as broken:
            raise OSError(str(broken)) from broken
        text = answer.data.decode()
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


@functools.cache
def _connections(
    url: str, authority: Path, certificate: tuple[Path, Path] | None
) -> urllib3.HTTPConnectionPool:
    """Connections to an API server that stay open for the whole run."""
    own, key = map(str, certificate) if certificate else (None, None)
    return urllib3.connection_from_url(
        url,
        ca_certs=str(authority),
        cert_file=own,
        key_file=key,
        maxsize=8,
        retries=False,
        timeout=_ANSWER_SECONDS,
    )
