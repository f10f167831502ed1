"""A command in a container that runs: its input, its output, its terminal, its exit code.

Protocol ``v5.channel.k8s.io``: each binary message begins with the number of its channel. The last
message of the server is a ``Status`` on the error channel, which has the exit code.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

import msgspec
from aiohttp import WSMsgType

from carrel_scheduler.kube.client import KubeClient
from carrel_scheduler.kube.errors import UNREADABLE, KubeError, StatusDetails, Unavailable
from carrel_scheduler.kube.resources import PODS

PROTOCOL: Final = "v5.channel.k8s.io"


class Channel(IntEnum):
    """The numbers of the channels."""

    INPUT = 0
    OUTPUT = 1
    ERRORS = 2
    STATUS = 3
    RESIZE = 4
    END = 255


class OutputChunk(NamedTuple):
    """A piece of a command's output, on ``OUTPUT`` or ``ERRORS``."""

    channel: Channel
    data: bytes


class Websocket(Protocol):
    """The methods of aiohttp's websocket that are used."""

    async def receive(self) -> Any:
        """The next message."""
        ...

    async def send_bytes(self, data: bytes) -> None:
        """Send one message."""
        ...

    async def close(self) -> bool:
        """Close the websocket."""
        ...


class CommandFailed(KubeError):  # noqa: N818 - an outcome to handle
    """The command could not be run; ``message`` says why, as that there is no such program."""


class _CommandStatus(msgspec.Struct, frozen=True):
    status: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: StatusDetails | None = None


_ENDING: Final = msgspec.json.Decoder(_CommandStatus)
_encode: Final = msgspec.json.Encoder().encode


class RemoteCommand:
    """A running command, as returned by ``execute``.

    Attributes:
        exit_code: once ``read`` gave ``None``; ``None`` when the command's end was not seen.
    """

    def __init__(self, websocket: Websocket) -> None:
        self._websocket = websocket
        self.exit_code: int | None = None

    async def read(self) -> OutputChunk | None:
        """The next piece of output; ``None`` when the command has ended.

        Raises ``CommandFailed``, and ``Unavailable`` when the connection breaks before the end.
        """
        while True:
            message = await self._websocket.receive()
            if message.type in {WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED}:
                if self.exit_code is None:
                    raise Unavailable(0, "Closed", "the connection ended before the command")
                return None
            if message.type is not WSMsgType.BINARY:
                raise Unavailable(0, "Broken", f"a message of type {message.type}")
            data = bytes(message.data)
            if not data:
                continue
            if data[0] == Channel.STATUS:
                self.exit_code = exit_code_of(data[1:])
            elif len(data) > 1 and data[0] in {Channel.OUTPUT, Channel.ERRORS}:
                return OutputChunk(Channel(data[0]), data[1:])

    async def write(self, data: bytes) -> None:
        """Send input."""
        await self._send(Channel.INPUT, data)

    async def close_input(self) -> None:
        """End the input: the command reads end of file."""
        await self._send(Channel.END, bytes([Channel.INPUT]))

    async def resize(self, columns: int, rows: int) -> None:
        """The terminal has another size now."""
        await self._send(Channel.RESIZE, _encode({"Width": columns, "Height": rows}))

    async def close(self) -> int | None:
        """Hang up; the exit code if the command's end was seen."""
        await self._websocket.close()
        return self.exit_code

    async def _send(self, channel: Channel, data: bytes) -> None:
        try:
            await self._websocket.send_bytes(bytes([channel]) + data)
        except ConnectionError as error:
            raise Unavailable(0, "Closed", f"the connection ended: {error}") from error


def exit_code_of(status: bytes) -> int:
    """The exit code in the last message. Raises ``CommandFailed`` when it says something else."""
    try:
        ending = _ENDING.decode(status)
    except UNREADABLE as error:
        raise CommandFailed(0, "Undecodable", f"the command's end: {error}") from error
    if ending.status == "Success":
        return 0
    details = ending.details or StatusDetails()
    for cause in details.causes or ():
        if cause.reason == "ExitCode" and cause.message.isdecimal():
            return int(cause.message)
    raise CommandFailed(ending.code, ending.reason or "InternalError", ending.message, details)


async def execute(
    client: KubeClient,
    namespace: str,
    pod: str,
    command: Sequence[str],
    container: str = "",
    *,
    stdin: bool = False,
    tty: bool = False,
) -> RemoteCommand:
    """Begin a command in a container.

    Args:
        client: of the API server.
        namespace: of the pod.
        pod: its name.
        command: program and arguments; no shell is between.
        container: by default the pod's only, or default, one.
        stdin: input will be sent.
        tty: in a terminal; its errors then come as output.

    Raises:
        NotFound: there is no such pod.
        Invalid: it has no such container.
        Forbidden: it is not allowed.
        Unavailable: the API server or the pod's node does not answer.
    """
    query = [("command", part) for part in command]
    query += [("stdout", "true"), ("stderr", "false" if tty else "true")]
    query += [("container", container)] if container else []
    query += [("stdin", "true")] if stdin else []
    query += [("tty", "true")] if tty else []
    return RemoteCommand(await client.open_websocket(PODS, pod, "exec", namespace, query, PROTOCOL))
