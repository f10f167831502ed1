"""Output of a task, from its node: kept there for as long as the pod is.

Every line is asked for with its time, which decides about ``since`` to the microsecond, and is
taken off again unless it was wanted.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final

from carrel_scheduler.engines.contract import EngineError, LogRequest
from carrel_scheduler.engines.kubernetes.tasks.task_pods import TaskPod
from carrel_scheduler.engines.streams import lines_of
from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import Invalid, KubeError, NotFound
from carrel_scheduler.kube.resources import PODS

_STAMP: Final = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")
_MICROSECONDS: Final = len("2026-01-01T00:00:00.000000")


async def read_log(
    client: KubeClient,
    pod: TaskPod,
    request: LogRequest,
    begun: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    """Output of a pod.

    Args:
        client: of the API server.
        pod: whose.
        request: what is wanted.
        begun: waits until there may be output, if it is wanted as it grows; false: there is none.

    Raises:
        EngineError: the node does not give it.
    """
    if request.follow and not await begun():
        return
    meta = pod.metadata
    stream = client.stream_text(PODS, meta.name, "log", meta.namespace, _query(pod, request))
    lines = Lines(request)
    try:
        async with aclosing(stream) as pieces:
            async for piece in pieces:
                data = lines.take(piece)
                if data:
                    yield data
    except (Invalid, NotFound):
        return  # it has not begun: there is no output yet
    except KubeError as error:
        reason = f"the log of pod {meta.name} cannot be read: {error.message}"
        raise EngineError(reason) from error


def _query(pod: TaskPod, request: LogRequest) -> dict[str, str]:
    query = {"container": pod.container, "timestamps": "true"}
    if request.follow:
        query["follow"] = "true"
    if request.tail_lines is not None:
        query["tailLines"] = str(request.tail_lines)
    if request.since is not None and request.since > 0:
        whole = datetime.fromtimestamp(int(request.since), UTC)
        query["sinceTime"] = whole.strftime("%Y-%m-%dT%H:%M:%SZ")
    return query


class Lines:
    """Takes the time off each line, or keeps it in our form, and leaves out what is too old."""

    def __init__(self, request: LogRequest) -> None:
        self._timestamps, self._since = request.timestamps, request.since
        self._head = b""
        self._within = False
        self._wanted = True

    def take(self, data: bytes) -> bytes:
        """The wanted part of a piece of the stream."""
        found: list[bytes] = []
        for part in lines_of(data):
            if self._within:
                rest = part
            else:
                head, space, rest = (self._head + part).partition(b" ")
                if not space:
                    self._head = head
                    continue
                self._head, self._within = b"", True
                self._begin(head, found)
            if self._wanted:
                found.append(rest)
            if part.endswith(b"\n"):
                self._within = False
        return b"".join(found)

    def _begin(self, stamp: bytes, found: list[bytes]) -> None:
        if not _STAMP.match(stamp):
            raise EngineError("the node has the log no more")
        text = stamp.decode("ascii").rstrip("Z")
        moment = f"{text[:19]}.{text[20:].ljust(6, '0')}"[:_MICROSECONDS]
        if self._since is not None:
            at = datetime.fromisoformat(f"{moment}+00:00").timestamp()
            self._wanted = at >= self._since
        if self._timestamps and self._wanted:
            found.append(f"{moment}Z ".encode())
