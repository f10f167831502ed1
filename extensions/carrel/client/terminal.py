"""A terminal or a command beside a running task, over a websocket.

A terminal's messages are JSON arrays, as terminals in Jupyter speak them: ``["stdin", text]`` and
``["set_size", rows, columns]`` go out, ``["stdout", text]`` and ``["exit", code]`` come in.
"""

from typing import TYPE_CHECKING, Self

import msgspec

from carrel.errors import UnexpectedAnswer

if TYPE_CHECKING:
    import aiohttp


class _Session:
    """A websocket to a command.

    Attributes:
        exit_code: known once ``read`` returned nothing, if the server sent it.
        cut: otherwise how the connection ended, in words.
    """

    def __init__(self, socket: "aiohttp.ClientWebSocketResponse") -> None:
        self._socket = socket
        self.exit_code: int | None = None
        self.cut = ""

    async def close(self) -> None:
        """Close the connection; a command without a terminal is ended if it still runs."""
        await self._socket.close()


class Terminal(_Session):
    """A session on a terminal."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def read(self) -> str:
        """The next output; empty at the end."""
        import aiohttp

        while True:
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY:
                return bytes(message.data).decode("utf-8", "replace")
            if message.type is not aiohttp.WSMsgType.TEXT:
                self.cut = str(message.extra or self._socket.close_code or message.data)
                return ""
            match _decoded(message.data):
                case ["stdout", str(text)]:
                    return text
                case ["exit", int(code)]:
                    self.exit_code = code
                    return ""
                case ["disconnect", *_]:
                    return ""
                case _:  # a setup message, or one that a newer server adds
                    continue

    async def write(self, text: str) -> None:
        """Send input."""
        await self._send(["stdin", text])

    async def resize(self, rows: int, columns: int) -> None:
        """Set the terminal's size."""
        await self._send(["set_size", rows, columns])

    async def _send(self, message: list[str | int]) -> None:
        await self._socket.send_str(msgspec.json.encode(message).decode())


def _decoded(text: str) -> list[object]:
    try:
        return msgspec.json.decode(text, type=list[object])
    except msgspec.MsgspecError as error:
        raise UnexpectedAnswer(
            f"A message of the terminal was not understood ({error})."
        ) from error


class PipedCommand(_Session):
    """A command beside a running task, without a terminal."""

    async def read(self) -> tuple[int, bytes]:
        """The next output, with 1 for the output stream and 2 for errors; empty at the end."""
        import aiohttp

        while True:
            message = await self._socket.receive()
            if message.type is aiohttp.WSMsgType.BINARY and message.data:
                return message.data[0], message.data[1:]
            if message.type is not aiohttp.WSMsgType.TEXT:
                self.cut = str(message.extra or self._socket.close_code or message.data)
                return 1, b""
            match _decoded(message.data):
                case ["exit", int(code)]:
                    self.exit_code = code
                    return 1, b""
                case _:  # one that a newer server adds
                    continue

    async def write(self, data: bytes) -> None:
        """Send input."""
        await self._socket.send_bytes(data)

    async def end_input(self) -> None:
        """The command reads end of file."""
        await self._socket.send_str("")
