"""Runs cells for a notebook's kernel on a GPU (``%%gpu``): a program that a task starts.

``python -m carrel.job.companion FOLDER KEEP`` listens on ``PORT``, which only its owner reaches
through the gateway, and takes nothing without the key in ``CARREL_COMPANION_KEY``. ``POST run`` has
the code and the variables of one cell; the answer is what the cell shows while it runs, as lines of
JSON, and at the end the variables that it assigned or changed, packed and signed. The cell runs in
the main thread in an IPython shell, so that ``!``, ``%``, displays and tracebacks are as in a
notebook. ``POST interrupt`` interrupts it; so does a kernel that is gone. The program ends after
KEEP seconds without a cell.
"""

import base64
import contextlib
import hashlib
import hmac
import io
import json
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Iterable, Iterator
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import cloudpickle  # type: ignore[import-untyped]
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config
from typing_extensions import override

KEY: Final = "CARREL_COMPANION_KEY"
BEAT_SECONDS: Final = 10.0
SPARE_SECONDS: Final = 20.0
"""Seconds until an orphaned program ends itself: between two cells the kernel ends it."""


class Cell:
    """A cell that runs, and its output."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.source = str(request["source"])
        self.outputs = [str(name) for name in request["outputs"]]
        self.variables: dict[str, bytes] = pickle.loads(base64.b64decode(request["variables"]))  # noqa: S301 - of the one who has the key
        self.frames: queue.Queue[bytes | None] = queue.Queue()
        self.gone = False

    def tell(self, kind: str, **content: Any) -> None:
        """Send a line to the kernel."""
        line = json.dumps({"kind": kind, **content}, default=str)
        self.frames.put(line.encode() + b"\n")

    def lines(self) -> Iterator[bytes]:
        """The lines to send, with heartbeats; a kernel that is gone ends the cell."""
        try:
            yield b"\n"
            while True:
                try:
                    frame = self.frames.get(timeout=BEAT_SECONDS)
                except queue.Empty:
                    frame = b"\n"
                if frame is None:
                    return
                yield frame
        except GeneratorExit:
            self.gone = True
            interrupt()
            raise


class CellStream(io.TextIOBase):
    """Replaces ``sys.stdout`` or ``sys.stderr`` while a cell runs."""

    def __init__(self, name: str) -> None:
        self._name = name

    @override
    def write(self, text: str) -> int:
        if text and running.cell is not None:
            running.cell.tell("stream", name=self._name, text=text)
        return len(text)


class RunningCell:
    """The running cell, in the main thread."""

    cell: Cell | None = None


running = RunningCell()


def interrupt() -> None:
    """Interrupt the running cell; no effect without one."""
    if running.cell is not None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


class _Publisher(DisplayPublisher):
    """Sends displays to the kernel."""

    @override
    def publish(  # type: ignore[override]
        self, data: Any, metadata: Any = None, *, transient: Any = None, update: bool = False,
        **_: Any,
    ) -> None:  # fmt: skip
        if running.cell is not None:
            shown = encoded(data)
            running.cell.tell(
                "display", data=shown, metadata=metadata or {}, transient=transient, update=update
            )

    @override
    def clear_output(self, wait: bool = False) -> None:
        if running.cell is not None:
            running.cell.tell("clear", wait=wait)


class _Hook(DisplayHook):
    """Sends the value of a cell's last line as it shows itself."""

    @override
    def __call__(self, result: Any = None) -> None:
        if result is not None and running.cell is not None and not self.quiet():  # type: ignore[no-untyped-call]
            data, metadata = self.compute_format_data(result)  # type: ignore[no-untyped-call]
            self.update_user_ns(result)  # type: ignore[no-untyped-call]
            running.cell.tell("display", data=encoded(data), metadata=metadata)


class _Shell(InteractiveShell):
    """An IPython shell whose tracebacks go to the kernel."""

    display_pub_class = _Publisher
    displayhook_class = _Hook

    @override
    def _showtraceback(self, etype: Any, evalue: Any, stb: Any) -> None:
        if running.cell is not None:
            running.cell.tell("error", ename=str(etype.__name__), evalue=str(evalue), traceback=stb)

    @override
    def enable_gui(self, gui: Any = None) -> None:
        """Ignore GUI event loops: there is no display."""


def encoded(data: dict[str, Any]) -> dict[str, Any]:
    """A display's data as JSON: bytes become base64, as in notebooks."""
    return {
        mime: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for mime, value in data.items()
    }


class _Packer(cloudpickle.Pickler):  # type: ignore[misc]
    """Packs values by value; tensors of a GPU arrive in the kernel's memory."""

    @override
    def reducer_override(self, obj: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is not None and type(obj) is torch.Tensor and obj.is_cuda:
            return obj.detach().cpu().__reduce_ex__(5)
        return super().reducer_override(obj)


def packed(value: Any) -> bytes | None:
    """A value as bytes; ``None`` for what cannot be packed."""
    file = io.BytesIO()
    try:
        _Packer(file, protocol=5).dump(value)
    except Exception:  # noqa: BLE001 - objects raise what they like when they are packed
        return None
    return file.getvalue()


def execute(shell: Any, cell: Cell) -> bytes:
    """Run a cell; returns its variables, its exception, and the names that cannot be sent back."""
    space: dict[str, Any] = shell.user_ns
    before: dict[str, bytes | None] = {}
    error: BaseException | None = None
    try:
        for name, value in cell.variables.items():
            space[name] = pickle.loads(value)  # noqa: S301 - of the one who has the key
            before[name] = packed(space[name])
        found = shell.run_cell(cell.source, store_history=False)
        error = found.error_before_exec or found.error_in_exec
    except KeyboardInterrupt as interrupted:
        error = interrupted
    except Exception as unreadable:  # noqa: BLE001 - what a variable raises when it is unpacked
        error = unreadable
    back: dict[str, bytes] = {}
    kept: list[str] = []
    for name in dict.fromkeys([*cell.outputs, *before]):
        if name not in space:
            continue
        now = packed(space[name])
        if now is None and name in cell.outputs:
            kept.append(name)
        elif now is not None and now != before.get(name):
            back[name] = now
    whole = {"variables": back, "kept": kept, "error": packed(error) if error else None,
             "text": f"{type(error).__name__}: {error}" if error else ""}  # fmt: skip
    return pickle.dumps(whole)


class CompanionServer(ThreadingMixIn, WSGIServer):
    """The HTTP server of a companion, with a thread for each request."""

    daemon_threads = True


class _Silent(WSGIRequestHandler):
    """Requests are no output of the cell."""

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class CompanionService:
    """The requests of the kernel."""

    def __init__(self, key: str) -> None:
        self._key = key
        self.cells: queue.Queue[Cell] = queue.Queue()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answer one request (WSGI)."""
        size = int(environ.get("CONTENT_LENGTH") or 0)
        try:
            request = json.loads(environ["wsgi.input"].read(size) or b"{}")
            allowed = hmac.compare_digest(str(request.get("key", "")), self._key)
        except (ValueError, AttributeError, TypeError):
            allowed = False
        if not allowed:
            start_response("403 Forbidden", [("Content-Type", "text/plain")])
            return [b"Only the kernel that started this may use it.\n"]
        start_response("200 OK", [("Content-Type", "application/octet-stream")])
        path = environ.get("PATH_INFO", "")
        if path == "/run":
            cell = Cell(request)
            self.cells.put(cell)
            return cell.lines()
        if path == "/interrupt":
            interrupt()
        return [b"\n"]


def serve(folder: str, keep: float) -> None:
    """Take cells until none has come for ``keep`` seconds."""
    key = os.environ.pop(KEY)
    service = CompanionService(key)
    host, port = os.environ.get("CARREL_HOST", "127.0.0.1"), int(os.environ["PORT"])
    server = make_server(host, port, service, server_class=CompanionServer, handler_class=_Silent)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    os.chdir(folder)
    sys.path[0] = os.getcwd()  # noqa: PTH109 - modules beside the notebook are found
    config = Config()
    config.HistoryManager.enabled = False
    shell: Any = _Shell.instance(config=config)
    sys.stdout, sys.stderr = CellStream("stdout"), CellStream("stderr")
    while True:
        try:
            cell = service.cells.get(timeout=keep + SPARE_SECONDS)
        except (queue.Empty, KeyboardInterrupt):
            return
        running.cell = cell
        answer = execute(shell, cell)
        with contextlib.suppress(KeyboardInterrupt):
            running.cell = None
        signature = hmac.new(key.encode(), answer, hashlib.sha256).hexdigest()
        cell.tell("end", size=len(answer), signature=signature)
        cell.frames.put(answer)
        cell.frames.put(None)
        if cell.gone:
            return


if __name__ == "__main__":
    serve(sys.argv[1], float(sys.argv[2]))
