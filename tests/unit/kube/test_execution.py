"""Commands in containers over a scripted websocket."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from aiohttp import WSMessage, WSMsgType

from carrel_scheduler.kube.errors import Unavailable
from carrel_scheduler.kube.execution import (
    Channel,
    CommandFailed,
    OutputChunk,
    RemoteCommand,
    execute,
    exit_code_of,
)
from carrel_scheduler.kube.resources import Resource

CLOSED = WSMessage(WSMsgType.CLOSED, None, None)
EXIT_3 = {
    "status": "Failure",
    "reason": "NonZeroExitCode",
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
}


class Scripted:
    def __init__(self, *messages: bytes) -> None:
        self.messages = [WSMessage(WSMsgType.BINARY, one, None) for one in messages]
        self.sent: list[bytes] = []
        self.closed = False

    async def receive(self) -> WSMessage:
        return self.messages.pop(0) if self.messages else CLOSED

    async def send_bytes(self, data: bytes) -> None:
        if self.closed:
            raise ConnectionResetError("closing")
        self.sent.append(data)

    async def close(self) -> bool:
        self.closed = True
        return True


def ending(status: Any) -> bytes:
    return b"\x03" + msgspec.json.encode(status)


async def test_output_then_the_exit_code() -> None:
    end = ending(EXIT_3)
    command = RemoteCommand(Scripted(b"\x01", b"\x02", b"\x01out\n", b"\x02err", b"", end))
    assert await command.read() == OutputChunk(Channel.OUTPUT, b"out\n")
    assert await command.read() == OutputChunk(Channel.ERRORS, b"err")
    assert command.exit_code is None
    assert await command.read() is None
    assert await command.close() == 3


async def test_input_its_end_and_the_size_of_a_terminal() -> None:
    websocket = Scripted()
    command = RemoteCommand(websocket)
    await command.write(b"hello")
    await command.resize(80, 24)
    await command.close_input()
    assert websocket.sent == [b"\x00hello", b'\x04{"Width":80,"Height":24}', b"\xff\x00"]
    assert await command.close() is None
    with pytest.raises(Unavailable):
        await command.write(b"more")


async def test_a_connection_that_ends_first() -> None:
    with pytest.raises(Unavailable, match="before the command"):
        await RemoteCommand(Scripted()).read()


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (b"<html>", "the command's end"),
        (b'{"status":"Failure","reason":"InternalError","message":"no such file"}', "no such file"),
        (b'{"status":"Failure","reason":"NonZeroExitCode"}', "NonZeroExitCode"),
    ],
)
def test_a_command_that_could_not_be_run(status: bytes, words: str) -> None:
    with pytest.raises(CommandFailed, match=words):
        exit_code_of(status)


def test_success_is_zero() -> None:
    assert exit_code_of(b'{"metadata":{},"status":"Success"}') == 0


async def test_what_is_asked_for() -> None:
    class Client:
        async def open_websocket(
            self,
            resource: Resource,
            name: str,
            sub: str,
            namespace: str,
            query: Sequence[tuple[str, str]],
            protocol: str,
        ) -> Scripted:
            assert (resource.plural, name, sub, namespace) == ("pods", "p", "exec", "a")
            assert protocol == "v5.channel.k8s.io"
            self.query = list(query)
            return Scripted()

    client: Any = Client()
    await execute(client, "a", "p", ["sh", "-c", "true"], "main", stdin=True, tty=True)
    assert client.query == [
        ("command", "sh"),
        ("command", "-c"),
        ("command", "true"),
        ("stdout", "true"),
        ("stderr", "false"),
        ("container", "main"),
        ("stdin", "true"),
        ("tty", "true"),
    ]
