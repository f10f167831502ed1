"""A transport to the API server with faults, random ones and one that is ordered.

Writes are numbered. At one of them the process is killed, by SIGKILL: before it is sent, or after
the server carried it out but before the answer was read.
"""

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec
from typing_extensions import override

from carrel_scheduler.kube.credentials import Credentials
from carrel_scheduler.kube.transport import (
    ApiServerUnreachable,
    HttpRequest,
    KubeResponse,
    KubeTransport,
)

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass
class Faults:
    """The faults of one process.

    Attributes:
        kill_at: the number of the write at which the process dies; ``None``: it is not killed.
        after: it dies after the write, else before.
        trouble: how many of the writes are refused, or lose their answer, of one.
        over: whether the faults are over.
        killed_at: called with the write at which it dies.
        written: how many writes there were.
    """

    chance: random.Random
    kill_at: int | None
    after: bool
    trouble: float
    over: Callable[[], bool]
    killed_at: Callable[[str], None]
    written: int = 0


class FaultyTransport(KubeTransport):
    """Sends requests under faults."""

    def __init__(self, credentials: Credentials, faults: Faults) -> None:
        super().__init__(credentials)
        self.faults = faults

    @override
    async def send(self, request: HttpRequest, seconds: float) -> KubeResponse:
        faults = self.faults
        if request.method not in WRITES or faults.over():
            return await super().send(request, seconds)
        number, faults.written = faults.written, faults.written + 1
        kills = number == faults.kill_at
        if kills and not faults.after:
            self._die(request, "before")
        if faults.chance.random() < faults.trouble:
            return await self._trouble(request, seconds)
        answer = await super().send(request, seconds)
        if kills:
            self._die(request, "after")
        return answer

    def _die(self, request: HttpRequest, when: str) -> None:
        self.faults.killed_at(f"{when} {request.method} {request.path}")
        os.kill(os.getpid(), signal.SIGKILL)

    async def _trouble(self, request: HttpRequest, seconds: float) -> KubeResponse:
        what = self.faults.chance.choice(("conflict", "busy", "broken", "lost"))
        if what == "lost":
            await super().send(request, seconds)
            raise ApiServerUnreachable("the answer was lost", sent=True)
        code, reason = {
            "conflict": (409, "Conflict"),
            "busy": (429, "TooManyRequests"),
            "broken": (500, "InternalError"),
        }[what]
        status = {"kind": "Status", "code": code, "reason": reason, "message": "a storm"}
        return KubeResponse(code, msgspec.json.encode(status))
