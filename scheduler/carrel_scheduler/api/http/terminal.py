"""A terminal beside a running task, over a websocket.

Messages are JSON arrays, as terminals in Jupyter speak them: ``["stdin", text]`` and
``["set_size", rows, columns]`` come in; ``["setup", {}]``, ``["stdout", text]`` and, at the end,
``["exit", code]`` and ``["disconnect", code]`` go out. The token travels in the header, so no page
of another site can open one.
"""

import asyncio
import codecs
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, Final

import msgspec
from tornado import websocket
from tornado.iostream import StreamClosedError
from typing_extensions import override

from carrel_scheduler.api import problems
from carrel_scheduler.api.http.handler import ApiHandler
from carrel_scheduler.api.operation import Call
from carrel_scheduler.api.problems import Code
from carrel_scheduler.api.services.event_stream import Watcher
from carrel_scheduler.api.services.task_files import running_task
from carrel_scheduler.engines.contract import EngineError, ExecSession, TaskId
from carrel_scheduler.engines.files.contract import CommandSession

log = logging.getLogger(__name__)
SHELL: Final = ("/bin/sh",)
LARGEST_MESSAGE_BYTES: Final = 2**20
MOST_CELLS: Final = 10_000


class TerminalHandler(ApiHandler, websocket.WebSocketHandler):
    """A websocket to a terminal; access is checked before the connection is upgraded."""

    session: ExecSession | CommandSession | None = None
    call: Call
    _tasks: Sequence["asyncio.Task[None]"] = ()
    _closing: "asyncio.Task[int] | None" = None

    @override
    async def prepare(self) -> None:
        """Check access and open the session, so that a refusal is a problem as everywhere."""
        await self.admit()
        if self.request.headers.get("Upgrade", "").lower() != "websocket":
            raise problems.BadRequest(
                Code.WEBSOCKET_EXPECTED,
                "A terminal is opened as a websocket",
                headers={"Upgrade": "websocket"},
            )
        if self.operation is not None:
            self.call = self.read_call(self.operation, b"")
        await self.note(self.call)
        query = self.call.query
        task = running_task(self.call.workload, query.index)
        try:
            self.session = await self.open_session(task)
        except EngineError as error:
            raise problems.Conflicting(Code.ENGINE_REFUSED, str(error)) from error

    async def open_session(self, task: TaskId) -> ExecSession | CommandSession:
        """Start the command beside the task. Raises ``EngineError``."""
        command = tuple(self.call.query.command) or SHELL
        return await self.services.deps.engine.exec(task, command)

    async def begin(self) -> None:
        """Announce that the terminal has started."""
        await self._say("setup", {})

    @override
    def check_origin(self, origin: str) -> bool:
        """Admit any origin: a page of another site cannot send the header with the token."""
        return bool(origin)

    @override
    async def open(self, *_: str, **__: str) -> None:
        """Begin to pass output on."""
        await self.begin()
        self._tasks = (
            asyncio.ensure_future(self.pass_output()),
            asyncio.ensure_future(self._watch_caller()),
        )

    @override
    async def on_message(self, message: str | bytes) -> None:
        """Handle keystrokes and sizes; other messages are ignored."""
        if self.session is None or len(message) > LARGEST_MESSAGE_BYTES:
            return
        try:
            match msgspec.json.decode(message):
                case ["stdin", str(text)]:
                    await self.session.write(text.encode())
                case ["set_size", int(rows), int(columns), *_] if (
                    0 < rows < MOST_CELLS and 0 < columns < MOST_CELLS
                ):
                    if isinstance(self.session, ExecSession):
                        await self.session.resize(rows, columns)
        except msgspec.DecodeError:
            log.debug("a terminal message was not JSON")
        except (EngineError, OSError) as error:
            log.info("a terminal accepts no more input: %s", error)

    @override
    def on_finish(self) -> None:
        """The upgrade was answered; if not with a websocket, nobody will ever read the session."""
        if self.get_status() != 101:
            self._hang_up()

    @override
    def on_close(self) -> None:
        """The window was closed."""
        for task in self._tasks:
            task.cancel()
        self._hang_up()

    def _hang_up(self) -> None:
        if self.session is not None:
            self._closing = asyncio.ensure_future(self.session.close())
            self.session = None

    async def pass_output(self) -> None:
        """Forward the output until its end, then the exit code."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        session = self.session
        try:
            while session is not None and (output := await session.read()):
                if text := decoder.decode(output):
                    await self._say("stdout", text)
            code = await session.close() if session is not None else 0
            self.session = None
            await self._say("exit", code)
            await self._say("disconnect", code)
            self.close()
        except (websocket.WebSocketClosedError, StreamClosedError):
            log.debug("the terminal's window was closed")

    async def _watch_caller(self) -> None:
        """Close the terminal when the caller's token is revoked or their rights have ended."""
        deps = self.services.deps
        watcher = Watcher(deps, self.visitor.person, self.token)
        meta, spec = self.call.workload.meta, self.call.workload.spec
        while await watcher.still_there():
            principal = watcher.principal
            if not (principal.sees(meta.project) and principal.owns(spec.user, spec.kind)):
                break
            await asyncio.sleep(deps.timing.verify)
        self.close(4403, "signed out")

    def _say(self, *message: Any) -> Awaitable[None]:
        return self.write_message(msgspec.json.encode(message).decode())
