"""A command beside a running task, without a terminal: what pipes carry stays as it is.

Binary messages that come in are input, a text message ends it. Those that go out begin with the
number of a descriptor, 1 for output and 2 for errors; ``["exit", code]`` is the last message.
"""

import logging

from tornado import websocket
from tornado.iostream import StreamClosedError
from typing_extensions import override

from carrel_scheduler.api.http.terminal import TerminalHandler
from carrel_scheduler.engines.contract import EngineError, TaskId
from carrel_scheduler.engines.files.contract import CommandSession

log = logging.getLogger(__name__)


class CommandHandler(TerminalHandler):
    """A connection to a command, whose input arrives as binary messages."""

    running: CommandSession

    @override
    async def open_session(self, task: TaskId) -> CommandSession:
        """Start the command. Raises ``EngineError``."""
        self.running = await self.services.deps.files.command(task, self.call.query.command)
        return self.running

    @override
    async def on_message(self, message: str | bytes) -> None:
        """Forward input; a text message ends it."""
        if self.session is None:
            return
        try:
            if isinstance(message, bytes):
                await self.running.write(message)
            else:
                await self.running.end_input()
        except EngineError as error:
            log.debug("%s accepts no more input: %s", type(self).__name__, error)

    @override
    async def begin(self) -> None:
        """Send nothing before the command's own output."""

    @override
    async def pass_output(self) -> None:
        """Forward the command's output and errors, then its exit code."""
        try:
            while True:
                stream, piece = await self.running.read_piece()
                if not piece:
                    break
                await self.write_message(bytes([stream]) + piece, binary=True)
            self.session = None
            await self._say("exit", await self.running.close())
            self.close()
        except (websocket.WebSocketClosedError, StreamClosedError):
            log.debug("the client of a command has disconnected")
