"""Server-sent events: the parser, and a stream that comes back after every break.

The server repeats what was missed after the last id seen, so a listener does not notice a restart
of the scheduler; it may get the present state of a workload once more.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from http.client import INTERNAL_SERVER_ERROR
from typing import Final

import msgspec

from carrel.client.transport import Parameters, Transport
from carrel.errors import ApiError, UnexpectedAnswer, Unreachable
from carrel.models import Event, Report, Workload
from carrel_schema.reading import read

QUIET_SECONDS: Final = 45.0
LONGEST_PAUSE_SECONDS: Final = 15.0
FIRST_RETRIES: Final = 3


@dataclass(slots=True)
class Message:
    """An event in the form of the API."""

    event: str
    data: str
    id: str


@dataclass(slots=True)
class Parser:
    """Bytes in, messages out; pieces may be cut anywhere."""

    last_id: str = ""
    _rest: bytes = b""
    _event: str = ""
    _data: list[str] = field(default_factory=list)

    def feed(self, piece: bytes) -> list[Message]:
        """Take the next bytes and return the messages they complete."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        found = (self._line(line.removesuffix(b"\r").decode("utf-8", "replace")) for line in lines)
        return [message for message in found if message is not None]

    def _line(self, line: str) -> Message | None:
        if not line:
            return self._end()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self.last_id = value
        return None

    def _end(self) -> Message | None:
        event, data = self._event or "message", self._data
        self._event, self._data = "", []
        return Message(event, "\n".join(data), self.last_id) if data else None


class _Envelope(msgspec.Struct):
    """The fields that the data of an event may have beside, or around, the workload."""

    workload: Workload | None = None
    report: Report | None = None


def decode(message: Message) -> Event:
    """The typed event. Raises ``UnexpectedAnswer``."""
    try:
        around = read(message.data, _Envelope)
        workload = around.workload or read(message.data, Workload)
    except msgspec.MsgspecError as error:
        raise UnexpectedAnswer(
            f"An event {message.event!r} was not understood ({error})."
        ) from error
    return Event(type=message.event, id=message.id, workload=workload, report=around.report)


async def events(
    transport: Transport,
    path: str,
    parameters: Parameters,
    opened: Callable[[], object] = lambda: None,
) -> AsyncGenerator[Event, None]:
    """Events for ever. Raises ``Unreachable`` only when the first connection fails several times.

    ``opened`` is called for each connection: later changes are among the events.
    Raises ``ApiError`` and ``NotSignedIn`` whenever the server refuses; a failure of the server
    itself (status 500 and above, as while the Hub restarts) is a break like others.
    """
    last_id = ""
    retry = 0
    connected = False
    while True:
        try:
            async with aclosing(_messages(transport, path, parameters, last_id)) as messages:
                async for message in messages:
                    connected = True
                    if not message.data:
                        opened()
                    else:
                        last_id, retry = message.id, 0
                        yield decode(message)
        except (Unreachable, ApiError) as error:
            if isinstance(error, ApiError) and error.status < INTERNAL_SERVER_ERROR:
                raise
            transport.lost()
            if not connected and retry >= FIRST_RETRIES:
                raise
        else:
            transport.lost()
        await transport.pauses.before(retry, LONGEST_PAUSE_SECONDS)
        retry += 1


async def _messages(
    transport: Transport, path: str, parameters: Parameters, last_id: str
) -> AsyncGenerator[Message, None]:
    """The messages of one connection; the first one, without data, marks the connection as open."""
    parser = Parser(last_id)
    headers = {"Accept": "text/event-stream"}
    if last_id:
        headers["Last-Event-ID"] = last_id
    async with transport.stream(
        path, parameters=parameters, headers=headers, quiet_seconds=QUIET_SECONDS
    ) as response:
        transport.heard()
        yield Message("open", "", last_id)
        async for piece in response.content.iter_any():
            transport.heard()
            for message in parser.feed(piece):
                yield message
