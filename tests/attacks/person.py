"""A person of the attacked product: a browser's session, a token, and jobs."""

import itertools
import socket
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any, Self
from urllib.parse import urlsplit

import requests

from carrel.errors import ApiError
from carrel.models import Workload
from e2e.stack import Stack, until

ENDED = ("succeeded", "failed", "stopped")
_numbers = itertools.count(1)


@dataclass
class Person:
    """A person who is signed in.

    Attributes:
        session: a browser's requests: cookies of the Hub.
        token: an API token of the person, made with that session.
        client: the scheduler's API with that token.
    """

    stack: Stack
    name: str
    project: str
    session: requests.Session = field(default_factory=requests.Session)
    token: str = ""

    @classmethod
    def of(cls, stack: Stack, name: str, project: str) -> Self:
        """Sign in with the password that ``carrel up`` printed, and make a token."""
        person = cls(stack, name, project)
        person.sign_in(stack.passwords[name])
        answer = person.hub("POST", f"/users/{name}/tokens", {"note": "attack"})
        assert answer.status_code == 201, answer.text
        person.token = str(answer.json()["token"])
        return person

    def __enter__(self) -> Self:
        self.client = self.stack.client(self.token)
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.session.close()

    def sign_in(self, password: str) -> requests.Response:
        """Send the sign-in form."""
        page = f"{self.stack.url}/hub/login"
        self.session.get(page, timeout=30)
        answer = self.session.post(
            page,
            data={"username": self.name, "password": password, "_xsrf": self.xsrf},
            timeout=30,
        )
        for one in (*answer.history, answer):
            # Of the domain `localhost`, which browsers take for the host; `requests` refuses it.
            found = SimpleCookie(one.headers.get("Set-Cookie", "")).get("jupyterhub-session-id")
            if found is not None:
                self.session.cookies.set(found.key, found.value, domain="localhost.local")
        return answer

    @property
    def xsrf(self) -> str:
        """The value that the Hub's forms and API want back."""
        found = [one.value for one in self.session.cookies if one.name == "_xsrf"]
        return str(found[-1]) if found else ""

    def hub(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> requests.Response:
        """Ask the Hub's API with the session's cookie."""
        return self.session.request(
            method,
            f"{self.stack.url}/hub/api{path}",
            json=body,
            headers={"X-XSRFToken": self.xsrf, "Referer": f"{self.stack.url}/hub/home"},
            timeout=30,
        )

    def api(self, method: str, path: str, **request: Any) -> requests.Response:
        """Ask the scheduler's API with the token; ``path`` begins after ``/api/v1``."""
        return requests.request(
            method,
            f"{self.stack.url}/services/carrel/api/v1{path}",
            headers={"Authorization": f"Bearer {self.token}", **request.pop("headers", {})},
            timeout=30,
            **request,
        )

    def submit(self, command: Sequence[str], **fields: Any) -> Workload:
        """Submit a job in the person's project; raises ``ApiError`` when refused."""
        body = {
            "kind": "training",
            "name": f"attack-{next(_numbers)}",
            "project": self.project,
            "command": list(command),
            "backoff_limit": 0,
            **fields,
        }
        return self.client.create_workload(body)

    def run(self, command: Sequence[str], *, seconds: float = 90, **fields: Any) -> tuple[str, str]:
        """Submit a job and wait for its end; gives its phase and what it printed."""
        made = self.submit(command, **fields)
        ended = self.ended(made, seconds=seconds)
        return ended.status.phase, self.logs(ended)

    def python(self, program: str, **fields: Any) -> tuple[str, str]:
        """Run a program of Python as a job; gives its phase and what it printed."""
        return self.run(["python", "-c", program], **fields)

    def phase(self, made: Workload) -> str:
        """The phase of a workload now."""
        return self.client.get_workload(made.project, made.name).status.phase

    def running(self, made: Workload, *, seconds: float = 90) -> Workload:
        """Wait until a workload runs."""
        until(
            lambda: self.phase(made) in ("running", *ENDED),
            seconds=seconds,
            every=0.1,
            why=f"{made.name} runs",
        )
        found = self.client.get_workload(made.project, made.name)
        assert found.status.phase == "running", (found.status.reason, self.logs(found))
        return found

    def ended(self, made: Workload, *, seconds: float = 90) -> Workload:
        """Wait until a workload has ended."""
        until(
            lambda: self.phase(made) in ENDED, seconds=seconds, every=0.1, why=f"{made.name} ends"
        )
        return self.client.get_workload(made.project, made.name)

    def logs(self, made: Workload) -> str:
        """The output of a workload so far."""
        try:
            return "".join(self.client.logs(made.project, made.name))
        except ApiError as error:
            return f"(no output: {error})"

    def delete(self, made: Workload) -> None:
        """End and remove a workload."""
        self.client.delete_workload(made.project, made.name)


def raw_exchange(url: str, request: bytes, *, seconds: float = 10) -> bytes:
    """Send bytes to the host of ``url`` as they are; give what comes until the end or a pause."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    received = b""
    with socket.create_connection((parts.hostname or "", port), timeout=seconds) as plain:
        line: socket.socket = plain
        if parts.scheme == "https":
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            line = context.wrap_socket(plain)
        line.sendall(request)
        try:
            while chunk := line.recv(65536):
                received += chunk
        except TimeoutError:
            return received
    return received
