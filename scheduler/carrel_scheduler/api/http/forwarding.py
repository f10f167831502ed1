"""A port of a running task, over a websocket that carries the bytes of one connection.

A command beside the task connects to the port on the task's own loopback, as its user, so that
servers which listen for the task alone are reached, too. A text message that comes in ends the
input; the reason of the closing says what is wrong.
"""

import logging
from typing import Final

from tornado import websocket
from tornado.iostream import StreamClosedError
from typing_extensions import override

from carrel_scheduler.api.http.command import CommandHandler
from carrel_scheduler.engines.contract import TaskId
from carrel_scheduler.engines.files.contract import CommandSession

log = logging.getLogger(__name__)
REFUSED: Final = 4404
LONGEST_REASON: Final = 100
RELAY: Final = """
import os, socket, sys, threading
try:
    there = socket.create_connection(("localhost", int(sys.argv[1])), 10)
except OSError as error:
    sys.exit(str(error))
there.settimeout(None)
def pass_on():
    while piece := there.recv(65536):
        while piece:
            piece = piece[os.write(1, piece):]
thread = threading.Thread(target=pass_on, daemon=True)
thread.start()
while piece := os.read(0, 65536):
    there.sendall(piece)
there.shutdown(socket.SHUT_WR)
thread.join()
"""


class ForwardHandler(CommandHandler):
    """A connection to a port: the command passes its bytes on."""

    @override
    async def open_session(self, task: TaskId) -> CommandSession:
        """Start the command that connects to the port."""
        port = str(self.call.query.port)
        self.running = await self.services.deps.files.command(task, ["python3", "-c", RELAY, port])
        return self.running

    @override
    async def pass_output(self) -> None:
        """Forward bytes from the port until either side ends the connection."""
        try:
            while piece := await self.running.read():
                await self.write_message(piece, binary=True)
            self.session = None
            code = await self.running.close()
            said = self.running.errors.decode("utf-8", "replace").strip().rpartition("\n")[2]
            if code:
                self.close(REFUSED, said.encode()[:LONGEST_REASON].decode("utf-8", "ignore"))
            else:
                self.close()
        except (websocket.WebSocketClosedError, StreamClosedError):
            log.debug("the client of a forwarded connection has disconnected")
