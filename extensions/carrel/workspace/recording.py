"""Connects the recorder of outputs to a Jupyter server: its kernels, pages, and notebook files.

``RecordingConnection`` takes the place of the server's connection between a page and a kernel, so
that it is known which cell a request is for and which pages are there. ``POST outputs/{kernel}``
with ``{"page", "seen"}`` tells a page what it has not shown itself. A file that the server writes
is told with its state before and after, so that a page which shows the same does not take it for
somebody else's change.
"""

import asyncio
import json
import logging
from collections.abc import Iterable
from typing import Any, Final

from jupyter_client.session import Session
from jupyter_core.utils import ensure_async
from jupyter_server.base.handlers import APIHandler
from jupyter_server.services.kernels.connection import base
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from jupyter_server.utils import url_path_join
from tornado import web
from typing_extensions import override

from carrel.workspace.recorder import CellExecution, KernelOutputs, merge

log = logging.getLogger("carrel.workspace")
SETTING: Final = "carrel_output_recorder"
CONNECTION: Final = "kernel_websocket_connection_class"
read_parts: Any = base.deserialize_msg_from_ws_v1  # it has no types
PROTOCOL: Final = "v1.kernel.websocket.jupyter.org"


class RecordedKernel:
    """A kernel: what it publishes, and the file that its outputs belong to.

    Attributes:
        path: of the notebook, as last known.
        written: states of the file (``last_modified``) that the server has written or replaced.
        hash: of the file as it was written last.
    """

    def __init__(self, kernel: Any, changed: Any) -> None:
        self.kernel, self.outputs = kernel, KernelOutputs(changed)
        self.path = ""
        self.written: list[str] = []
        self.hash = ""
        self._session = Session(config=kernel.session.config, key=kernel.session.key)
        self._stream: Any = None
        self._port = 0

    def listen(self) -> None:
        """Subscribe, again where the kernel has other ports since."""
        if self._port == self.kernel.iopub_port and not self._stream.closed():
            return
        self.close()
        self._port, self._stream = self.kernel.iopub_port, self.kernel.connect_iopub()
        self._stream.on_recv(self._on_frames)

    def close(self) -> None:
        """End the subscription."""
        if self._stream is not None and not self._stream.closed():
            self._stream.close()

    def _on_frames(self, frames: list[bytes]) -> None:
        try:
            _, parts = self._session.feed_identities(frames)
            message = self._session.deserialize(parts)
        except (ValueError, IndexError, TypeError) as error:
            log.warning("A kernel published something unreadable: %s", error)
            return
        self.outputs.received(message, sum(map(len, frames)))


class OutputRecorder:
    """Records the outputs of a server's kernels. Changes wait ``delay`` seconds before a write."""

    def __init__(self, kernels: Any, sessions: Any, contents: Any, *, delay: float = 2.0) -> None:
        self._kernels, self._sessions, self._contents = kernels, sessions, contents
        self._delay = delay
        self._recorded: dict[str, RecordedKernel] = {}
        self._writing: dict[str, asyncio.Task[None]] = {}

    def watch(self, kernel_id: str) -> RecordedKernel:
        """Record a kernel from now on. Raises ``KeyError`` when there is none."""
        for gone in [one for one in self._recorded if one not in self._kernels]:
            if not self._recorded[gone].outputs.unwritten():
                self._recorded.pop(gone).close()
        kernel = self._kernels.get_kernel(kernel_id)
        known = self._recorded.get(kernel_id)
        if known is None or known.kernel is not kernel:
            known = RecordedKernel(kernel, lambda: self._write_soon(kernel_id))
            self._recorded[kernel_id] = known
            ended = known.outputs.ended
            self._kernels.add_restart_callback(kernel_id, ended)
            self._kernels.add_restart_callback(kernel_id, ended, "dead")
        known.listen()
        return known

    def find(self, kernel_id: str) -> RecordedKernel | None:
        """The recorded outputs of a kernel."""
        return self._recorded.get(kernel_id)

    async def stop(self) -> None:
        """Write what files may lack, also what an open page has not saved yet."""
        recorded, self._recorded = self._recorded, {}
        for task in self._writing.values():
            task.cancel()
        for kernel_id, one in recorded.items():
            one.outputs.ended()
            await self._write(kernel_id, one, one.outputs.unwritten(owned=True))
            one.close()

    async def modified(self, kernel_id: str, recorded: RecordedKernel) -> str:
        """The time of the last change of a kernel's notebook file; empty where there is none."""
        await self._locate(kernel_id, recorded)
        if not recorded.path:
            return ""
        try:
            found = await ensure_async(self._contents.get(recorded.path, content=False))
        except web.HTTPError:
            return ""
        return _stamp(found)

    def _write_soon(self, kernel_id: str) -> None:
        recorded, task = self._recorded.get(kernel_id), self._writing.get(kernel_id)
        waits = task is not None and not task.done()
        if recorded is not None and not waits and recorded.outputs.unwritten():
            self._writing[kernel_id] = asyncio.create_task(self._write_later(kernel_id, recorded))

    async def _write_later(self, kernel_id: str, recorded: RecordedKernel) -> None:
        while recorded.outputs.unwritten():
            await asyncio.sleep(self._delay)
            await self._write(kernel_id, recorded, recorded.outputs.unwritten())

    async def _write(
        self, kernel_id: str, recorded: RecordedKernel, runs: Iterable[CellExecution]
    ) -> None:
        """Put outputs into the file. One that cannot be written is told in the server's log."""
        runs = list(runs)
        await self._locate(kernel_id, recorded)
        path = recorded.path
        versions = {run.cell: run.version for run in runs}
        try:
            if path and runs:
                await self._put(path, recorded, runs)
        except (web.HTTPError, OSError) as error:
            log.warning("The outputs of %s are not in its file: %s", path, error)
        for run in runs:
            run.written = versions[run.cell]

    async def _put(self, path: str, recorded: RecordedKernel, runs: list[CellExecution]) -> None:
        found = await ensure_async(self._contents.get(path, type="notebook", content=True))
        if not merge(found["content"], runs):
            return
        model = {"type": "notebook", "format": "json", "content": found["content"]}
        await ensure_async(self._contents.save(model, path))
        after = await ensure_async(self._contents.get(path, content=False, require_hash=True))
        recorded.written += [_stamp(found), _stamp(after)]
        recorded.hash = after.get("hash") or ""

    async def _locate(self, kernel_id: str, recorded: RecordedKernel) -> None:
        """Learn which notebook a kernel belongs to; of one that has ended, the last stays."""
        for session in await self._sessions.list_sessions():
            if session["kernel"]["id"] == kernel_id and session["type"] == "notebook":
                recorded.path = str(session["path"])


def _stamp(model: dict[str, Any]) -> str:
    return str(model["last_modified"].isoformat().replace("+00:00", "Z"))


class RecordingConnection(ZMQChannelsWebsocketConnection):
    """The server's own connection of a page with a kernel, and the recorder is told of both."""

    @property
    def _recorder(self) -> OutputRecorder:
        recorder: OutputRecorder = self.websocket_handler.settings[SETTING]
        return recorder

    @override
    def connect(self) -> Any:
        """The page is there; the recorder listens before it can ask for anything."""
        self._recorder.watch(self.kernel_id).outputs.opened(self.session.session)
        return super().connect()

    @override
    def disconnect(self) -> Any:
        """The page is gone, unless the same one is connected anew already."""
        mine = self._open_sessions.get(self.session_key) in (None, self.websocket_handler)
        recorded = self._recorder.find(self.kernel_id)
        if recorded is not None and mine:
            recorded.outputs.closed(self.session.session)
        disconnect: Any = super().disconnect
        return disconnect()

    @override
    def handle_incoming_message(self, incoming_msg: Any) -> None:
        """Note which cell is asked for, and pass the request on."""
        recorded = self._recorder.find(self.kernel_id)
        if recorded is not None and (found := cell_request(incoming_msg, self.subprotocol)):
            recorded.outputs.asked(*found)
        super().handle_incoming_message(incoming_msg)


def cell_request(incoming: Any, protocol: str | None) -> tuple[str, str, str, str] | None:
    """Cell, code, message and session of a request to execute a cell; of all else ``None``."""
    try:
        if protocol == PROTOCOL:
            channel, parts = read_parts(incoming)
            if channel != "shell" or b"execute_request" not in parts[0]:
                return None
            header, _, metadata, content = (json.loads(part) for part in parts[:4])
        elif isinstance(incoming, str):
            message = json.loads(incoming)
            header, metadata, content = message["header"], message["metadata"], message["content"]
        else:
            return None
        if header["msg_type"] != "execute_request" or "cellId" not in metadata:
            return None
        return metadata["cellId"], content["code"], header["msg_id"], header["session"]
    except (ValueError, KeyError, IndexError, TypeError):
        return None  # the server itself refuses what is no message


class OutputsHandler(APIHandler):
    """POST: what cells of a kernel show that this page has not shown itself."""

    _track_activity = False

    @override
    def initialize(self, recorder: OutputRecorder) -> None:
        self.recorder = recorder

    @override
    @web.authenticated
    async def post(self, kernel_id: str) -> None:
        """Answer with changes since ``seen``; the page becomes owner of what has none."""
        body = self.get_json_body()
        page, seen = (body or {}).get("page"), (body or {}).get("seen")
        if not isinstance(page, str) or not isinstance(seen, int):
            raise web.HTTPError(400, 'Ask with {"page": "its session", "seen": 0}.')
        recorded = self.recorder.find(kernel_id)
        if recorded is None:
            raise web.HTTPError(404, f"Nothing is recorded of the kernel {kernel_id}.")
        modified = await self.recorder.modified(kernel_id, recorded)
        outputs = recorded.outputs
        if page in outputs.pages:
            outputs.take_over(page)
        self.set_header("Cache-Control", "no-store")
        self.finish(
            json.dumps(
                {
                    "version": outputs.version,
                    "runs": [run.as_dict(page) for run in outputs.since(seen, page)],
                    "modified": modified,
                    "written": recorded.written,
                    "hash": recorded.hash,
                }
            )
        )


def install(server: Any) -> OutputRecorder | None:
    """Record the outputs of a server's kernels, unless it has a connection class of its own."""
    settings: Any = server.web_app.settings
    if settings.get(CONNECTION) is not ZMQChannelsWebsocketConnection:
        log.warning("Outputs are not recorded: this server has another %s.", CONNECTION)
        return None
    recorder = OutputRecorder(
        server.kernel_manager, server.session_manager, server.contents_manager
    )
    settings[SETTING], settings[CONNECTION] = recorder, RecordingConnection
    path = url_path_join(server.base_url, "carrel/outputs", r"([\w-]+)")
    server.web_app.add_handlers(".*$", [(path, OutputsHandler, {"recorder": recorder})])
    return recorder
