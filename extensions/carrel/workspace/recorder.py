"""Outputs of cells, kept by the server, so that nothing is lost while no page is open.

Pages execute cells as ever; beside them the server listens to what each kernel publishes and keeps
the outputs of the latest execution of every cell (``KernelOutputs``, with nbclient, which applies
``clear_output`` and updates of displays). An execution belongs to the page that asked for it, which
shows and saves its outputs. When that page is gone it has no owner: the server writes its outputs
to the notebook's file, until a page that opens the notebook takes it over.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final

import nbformat
from nbclient import NotebookClient

v4: Any = nbformat.v4  # it has no types
MOST_BYTES: Final = 128 * 2**20
"""The most output of a kernel; finished outputs that are saved are dropped, oldest first."""
OVERWRITTEN: Final = re.compile(r"[^\n]*\r+(?=[^\n\r])")
JOIN_EVERY: Final = 500
"""Pieces of text; what a progress bar has overwritten is not kept for longer."""
OUTPUTS: Final = frozenset(
    {"stream", "display_data", "execute_result", "error", "clear_output", "update_display_data",
     "execute_input"}
)  # fmt: skip


@dataclass(slots=True)
class CellExecution:
    """The latest execution of one cell.

    Attributes:
        cell: the cell's id in the notebook.
        request: the id of the message that asked for it.
        asker: the session of the page that asked for it, and shows it by itself.
        owner: that of the page that saves it, at first the same.
        running: from the request until the kernel has done it.
        version: grows with each change; compared with ``written``, that of the notebook's file.
    """

    cell: str
    code: str
    request: str
    asker: str
    owner: str
    node: Any
    index: int
    running: bool = True
    version: int = 0
    written: int = 0
    size: int = 0

    def as_dict(self, page: str) -> dict[str, Any]:
        """The cell as JSON for a page."""
        join_streams(self.node.outputs)
        return {
            "cell": self.cell,
            "code": self.code,
            "mine": self.owner == page,
            "running": self.running,
            "execution_count": self.node.execution_count,
            "outputs": self.node.outputs,
        }


def _applier() -> NotebookClient:
    """A client that applies messages to cells; it never has a kernel of its own."""
    client = NotebookClient(v4.new_notebook(), record_timing=False)
    client.clear_before_next_output = False
    return client


@dataclass(slots=True)
class KernelOutputs:
    """The latest executions of one kernel's cells. ``changed`` is called after each change."""

    changed: Callable[[], None]
    most_bytes: int = MOST_BYTES
    version: int = 0
    pages: set[str] = field(default_factory=set)
    _runs: dict[str, CellExecution] = field(default_factory=dict)
    _requests: dict[str, CellExecution] = field(default_factory=dict)
    _captured: dict[str, str] = field(default_factory=dict)
    _client: Any = field(default_factory=_applier)

    def asked(self, cell: str, code: str, request: str, asker: str) -> None:
        """A page asks to execute a cell; what it showed before is gone."""
        nodes = self._client.nb.cells
        before = self._runs.pop(cell, None)
        if before is None:
            index = len(nodes)
            nodes.append(v4.new_code_cell())
        else:
            index = before.index
            self._requests.pop(before.request, None)
            self._client.clear_display_id_mapping(index)
            nodes[index] = v4.new_code_cell()
        run = CellExecution(cell, code, request, asker, asker, nodes[index], index)
        self._runs[cell] = self._requests[request] = run
        self._touch(run)

    def knows(self, request: str) -> bool:
        """Whether messages with this parent belong to a cell."""
        return request in self._requests

    def received(self, message: Mapping[str, Any], size: int = 0) -> None:
        """A message that the kernel published, with its size in bytes."""
        kind, content = message["header"]["msg_type"], message["content"]
        if kind == "status" and content.get("execution_state") in ("starting", "restarting"):
            self.ended()
            return
        if kind in ("comm_open", "comm_msg"):
            self._note_capture(content)
            return
        run = self._requests.get((message.get("parent_header") or {}).get("msg_id", ""))
        if run is None:
            return
        if kind == "status" and content.get("execution_state") == "idle":
            run.running = False
            self._touch(run)
            self._make_room()
        elif kind in OUTPUTS and not (run.owner in self.pages and self._is_captured(run)):
            run.size += size
            if kind != "stream" or len(run.node.outputs) % JOIN_EVERY == 0:
                join_streams(run.node.outputs)
            self._client.process_message({**message, "msg_type": kind}, run.node, run.index)
            self._touch(run)

    def ended(self) -> None:
        """The kernel ended or starts anew: nothing runs in it any more."""
        for run in self._runs.values():
            if run.running:
                run.running = False
                self._touch(run)

    def opened(self, page: str) -> None:
        """A page is connected."""
        self.pages.add(page)

    def closed(self, page: str) -> None:
        """A page is gone; what it has asked for has no owner until it or another one comes."""
        self.pages.discard(page)
        self.changed()

    def take_over(self, page: str) -> None:
        """A page that has opened the notebook becomes the owner of what has none."""
        for run in self._runs.values():
            if run.owner not in self.pages:
                run.owner = page

    def since(self, seen: int, page: str) -> list[CellExecution]:
        """The executions that changed since a version and that another page asked for."""
        return [
            run for run in self._runs.values() if run.version > seen and run.asker != page
        ]  # fmt: skip

    def unwritten(self, *, owned: bool = False) -> list[CellExecution]:
        """Executions whose outputs the file may lack: those without owner, or with it as well."""
        return [
            run for run in self._runs.values()
            if run.version > run.written and (owned or run.owner not in self.pages)
        ]  # fmt: skip

    def _touch(self, run: CellExecution) -> None:
        self.version += 1
        run.version = self.version
        self.changed()

    def _note_capture(self, content: Mapping[str, Any]) -> None:
        """Remember which request's output an Output widget of a page takes for itself."""
        state = (content.get("data") or {}).get("state") or {}
        if "msg_id" not in state:
            return
        self._captured.pop(content["comm_id"], None)
        if state["msg_id"]:
            self._captured[content["comm_id"]] = state["msg_id"]

    def _is_captured(self, run: CellExecution) -> bool:
        return run.request in self._captured.values()

    def _make_room(self) -> None:
        """Forget the oldest finished executions that their page or the file has."""
        left = sum(run.size for run in self._runs.values()) - self.most_bytes
        for run in sorted(self._runs.values(), key=lambda one: one.version):
            safe = run.owner in self.pages or run.written >= run.version
            if left > 0 and safe and not run.running:
                left -= run.size
                del self._runs[run.cell], self._requests[run.request]
                run.node.outputs = []


def merge(notebook: Any, runs: Iterable[CellExecution]) -> bool:
    """Put outputs into a notebook's cells, which become trusted; whether anything is other now.

    A notebook of a format without ids has its cells found by their source.
    """
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    changed = False
    for run in runs:
        same = [cell for cell in cells if cell.get("id") == run.cell] or [
            cell for cell in cells if "id" not in cell and cell.source == run.code
        ]
        if len(same) != 1:
            continue
        join_streams(run.node.outputs)
        shown = (run.node.outputs, run.node.execution_count)
        if (same[0].outputs, same[0].execution_count) != shown:
            same[0].outputs, same[0].execution_count = shown
            same[0].metadata.trusted = True
            changed = True
    return changed


def join_streams(outputs: list[Any]) -> None:
    """Text at the end that follows text of the same stream becomes one, as a terminal shows it.

    Called before anything but text is added, so that positions of other outputs never move.
    """
    first = len(outputs)
    while first and outputs[first - 1].output_type == "stream":
        first -= 1
    joined = []
    for name, same in groupby(outputs[first:], key=lambda output: output.name):
        text = OVERWRITTEN.sub("", "".join(output.text for output in same))
        joined.append(v4.new_output("stream", name=name, text=text))
    outputs[first:] = joined
