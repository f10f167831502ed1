"""A transport of the tests: answers as told, remembers what was sent."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from typing_extensions import override

from carrel_scheduler.kube.credentials import ServerAccess
from carrel_scheduler.kube.transport import HttpRequest, KubeResponse, KubeTransport


class NoCredentials:
    async def access(self) -> ServerAccess:
        return ServerAccess("https://nowhere")

    async def renewed(self, refused: ServerAccess) -> ServerAccess:
        return refused


class FakeResponse:
    """A streamed answer."""

    def __init__(self, status: int, chunks: list[bytes]) -> None:
        self.status = status
        self._chunks = chunks
        self.content = self
        self.headers: dict[str, str] = {"Retry-After": "3"}

    async def read(self) -> bytes:
        return b"".join(self._chunks)

    async def iter_any(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


class FakeTransport(KubeTransport):
    """Gives ``answers`` one after the other; an exception among them is raised."""

    def __init__(self, *answers: KubeResponse | Exception) -> None:
        super().__init__(NoCredentials())
        self.answers = list(answers)
        self.sent: list[HttpRequest] = []

    @override
    async def send(self, request: HttpRequest, seconds: float) -> KubeResponse:
        self.sent.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    @override
    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Any]:
        self.sent.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        yield FakeResponse(answer.status, [answer.body])


def answer(obj: Any, status: int = 200) -> KubeResponse:
    return KubeResponse(status, msgspec.json.encode(obj))


def refusal(status: int, reason: str, **details: Any) -> KubeResponse:
    return answer({"kind": "Status", "reason": reason, "code": status, "details": details}, status)
