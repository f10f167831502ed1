"""A kernel's companion: a process with a GPU that runs single cells for it (``%%gpu``).

It is a training of the person's project like any other: it waits in the queue, counts against the
quota, and can be preempted. The kernel sends it a cell with the variables that the cell reads,
shows what comes back while it runs (``carrel.job.companion``), and takes over the variables that
the cell assigned or changed. Then the GPU is given back, at once or after some idle seconds.
"""

import ast
import asyncio
import base64
import hashlib
import hmac
import json
import os
import pickle
import queue
import secrets
import symtable
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

from carrel import wording
from carrel.client import Client
from carrel.client.shared_events import changes
from carrel.client.submit import default_project
from carrel.errors import ApiError, CarrelError, Unreachable
from carrel.job.companion import BEAT_SECONDS, KEY
from carrel.models import Workload
from carrel.notebook.cell import (
    COMPANION_LABEL,
    ITS_OWN,
    OF_THE_SHELL,
    CannotSend,
    borrowed_names,
    pack,
)
from carrel.results import RemoteError
from carrel.volumes import mount_folder

MOST_BYTES: Final = 256 * 2**20
START_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05
IDLE_SECONDS: Final = 60.0
"""Later than any of its own times, the gateway stops a companion that nobody asks any more."""


class LostCompanion(CarrelError):  # noqa: N818 - reads as the fact it states
    """The companion ended before the cell did; nothing of the cell came back."""


def cell_variables(source: str) -> tuple[frozenset[str], frozenset[str]]:
    """Names that a cell may read of the notebook, and those that it assigns."""
    table = symtable.symtable(source, "<cell>", "exec")
    symbols = table.get_symbols()
    read = {one.get_name() for one in symbols if one.is_referenced()} | borrowed_names(source)
    changed = {
        node.target.id
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
    }
    bound = {one.get_name() for one in symbols if one.is_assigned() or one.is_imported()}
    for child in table.get_children():
        bound |= {one.get_name() for one in child.get_symbols() if one.is_declared_global()}
    return frozenset(read | changed), frozenset(bound)


def variables_of(source: str, given: list[str], namespace: Mapping[str, Any]) -> dict[str, bytes]:
    """The variables for the companion, each packed. Raises ``CannotSend``.

    What the cell assigns as well may be old and need not go: it stays here if it cannot.
    """
    read, bound = cell_variables(source)
    sent: dict[str, bytes] = {}
    for name in sorted((read | set(given)) - OF_THE_SHELL):
        if name not in namespace or (name.startswith("_") and name not in given):
            continue
        try:
            sent[name] = pack({name: namespace[name]}, namespace[name])
        except CannotSend:
            if name not in bound or name in given:
                raise
    size = sum(map(len, sent.values()))
    if size > MOST_BYTES:
        largest = max(sent, key=lambda name: len(sent[name]))
        raise CannotSend(
            f"The variables of this cell take {size / 2**20:.0f} MiB, more than "
            f"{MOST_BYTES // 2**20} MiB. Save `{largest}` to a file and load it in the cell.",
            code="too_large",
        )
    return sent


class Companion:
    """A companion. Methods raise ``CarrelError``.

    Attributes:
        asked: the request's fields; a cell with others needs another companion.
        workload: as last known; ``None`` before it was submitted.
    """

    def __init__(self, client: Client, asked: Mapping[str, Any], keep: float) -> None:
        self._client, self.asked, self.keep = client, dict(asked), keep
        self.workload: Workload | None = None
        self.ready = False
        self._key = secrets.token_urlsafe(32)
        self._timer: asyncio.TimerHandle | None = None

    def submit(self) -> None:
        """Submit the workload with the GPU."""
        folder = os.getcwd()  # noqa: PTH109 - the kernel's folder as a string
        idle = self.keep + IDLE_SECONDS
        route = {"access": "user", "max_request_bytes": 2 * MOST_BYTES, "idle_seconds": idle}
        body = {
            "kind": "training",
            "name_prefix": "gpu",
            "project": default_project(self._client),
            "command": [sys.executable, "-m", "carrel.job.companion", folder, str(self.keep)],
            "grace_seconds": 5.0,
            **self.asked,
            "labels": {**self.asked.get("labels", {}), COMPANION_LABEL: "yes"},
            "restart_policy": "never",
            "routes": [route],
            "secret_environment": {**self.asked.get("secret_environment", {}), KEY: self._key},
        }
        if not mount_folder(body, folder):
            body["command"][3] = ITS_OWN
        self.workload = self._client.create_workload(body)

    def run(self, source: str, given: list[str], namespace: Mapping[str, Any]) -> "CellRun":
        """Begin a cell; what it shows arrives in the run's queue. Asks for a GPU if need be."""
        self.hold()
        request = {
            "key": self._key,
            "source": source,
            "outputs": sorted(cell_variables(source)[1]),
            "variables": base64.b64encode(
                pickle.dumps(variables_of(source, given, namespace))
            ).decode(),
        }
        if self.workload is None:
            self.submit()
        run = CellRun()
        self._client.loop.start(self._drive(run, request))
        return run

    def interrupt(self) -> None:
        """Interrupt the running cell."""
        with suppress(CarrelError):
            post = self._endpoint.post({"key": self._key}, "interrupt", seconds=5)
            self._client.loop.run(post)

    def release(self) -> None:
        """Give the GPU back now."""
        self.hold()
        self.ready = False
        if self.workload is not None:
            with suppress(CarrelError):
                self._client.delete_workload(self.workload.project, self.workload.name)
            self.workload = None

    def release_later(self) -> None:
        """Give it back after the idle seconds, at once where there are none."""
        if not self.keep:
            self.release()
            return

        def start() -> None:
            self._timer = self._client.loop.loop.call_later(self.keep, self._expire)

        self._client.loop.call(start)

    def hold(self) -> None:
        """Cancel the pending release of the GPU."""
        timer, self._timer = self._timer, None
        if timer is not None:
            self._client.loop.call(timer.cancel)

    def verified(self, answer: bytes, signature: str) -> dict[str, Any]:
        """The answer, if the companion's signature is right. Raises ``LostCompanion``."""
        right = hmac.new(self._key.encode(), answer, hashlib.sha256).hexdigest()
        if not hmac.compare_digest(right, signature):
            raise LostCompanion("What came back is not from the companion of this kernel.")
        found: dict[str, Any] = pickle.loads(answer)  # noqa: S301 - signed with this kernel's key
        return found

    @property
    def _endpoint(self) -> Any:
        workload = self.workload
        if workload is None:
            raise LostCompanion("There is no companion.")
        return self._client.aio.endpoint(workload.project, workload.name)

    def _expire(self) -> None:
        workload, self.workload, self.ready = self.workload, None, False
        if workload is not None:
            asyncio.ensure_future(self._end(workload))  # noqa: RUF006 - the loop is the client's own

    async def _end(self, workload: Workload) -> None:
        with suppress(CarrelError):
            await self._client.aio.delete_workload(workload.project, workload.name)

    async def _drive(self, run: "CellRun", request: dict[str, Any]) -> None:
        try:
            if not self.ready:
                await self._until_ready(run)
                self.ready = True
            async with aclosing(self._watched(request)) as pieces:
                async for piece in pieces:
                    run.take(piece)
            if not run.complete:
                run.fail(LostCompanion(await self._why()))
        except CarrelError as error:
            lost = isinstance(error, Unreachable) or not isinstance(error, ApiError | LostCompanion)
            run.fail(LostCompanion(await self._why()) if lost else error)
        except Exception as error:  # noqa: BLE001 - the kernel waits for an answer, whatever happens here
            run.fail(error)

    async def _watched(self, request: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        pieces = self._endpoint.stream(request, "run", seconds=6 * BEAT_SECONDS)
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    async def _until_ready(self, run: "CellRun") -> None:
        workload = self.workload
        if workload is None:
            raise LostCompanion("There is no companion.")
        events = changes(self._client.aio, workload.project, workload.name)
        async with aclosing(events):
            async for event in events:
                self.workload = event.workload
                if event.type == "deleted" or event.workload.at_rest:
                    raise LostCompanion(await self._why())
                if event.workload.status.phase == "running":
                    break
        deadline = asyncio.get_running_loop().time() + START_SECONDS
        while True:
            try:
                await self._endpoint.post({"key": self._key}, "ready", seconds=5)
            except (ApiError, Unreachable) as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise LostCompanion(f"The companion does not answer: {error}") from error
                await asyncio.sleep(LOOK_SECONDS)
                current = await self._client.aio.get_workload(workload.project, workload.name)
                if current.at_rest:
                    raise LostCompanion(await self._why()) from error
            else:
                run.started()
                return

    async def _why(self) -> str:
        """The reason why the companion is gone, as a sentence."""
        workload = self.workload
        if workload is None:
            return "The companion has ended; run the cell again."
        try:
            workload = await self._client.aio.get_workload(workload.project, workload.name)
            why = wording.why(workload)
            if not why and workload.at_rest:
                pieces = self._client.aio.logs(workload.project, workload.name, tail=5)
                async with aclosing(pieces):
                    why = "".join([piece async for piece in pieces]).strip()
        except CarrelError as error:
            why = str(error)
        return f"The GPU's process ended and nothing of the cell came back. {why}".strip()


class CellRun:
    """The messages of a running cell, for the kernel's main thread.

    ``frames`` holds pairs of a word and its content: ``started``; ``stream``, ``display``,
    ``clear`` and ``error`` as the companion tells them; ``end`` with answer and signature;
    ``failed`` with an exception.
    """

    def __init__(self) -> None:
        self.frames: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.complete = False
        self._buffer = bytearray()
        self._end: dict[str, Any] | None = None

    def started(self) -> None:
        """Handle the start of the companion."""
        self.frames.put(("started", None))

    def fail(self, error: Exception) -> None:
        """End the cell with an error: no further message comes."""
        self.frames.put(("failed", error))

    def take(self, piece: bytes) -> None:
        """A piece of the answer: lines of JSON, then the packed rest."""
        self._buffer += piece
        while self._end is None:
            line, found, rest = self._buffer.partition(b"\n")
            if not found:
                return
            self._buffer = rest
            if line:
                content = json.loads(line)
                kind = content.pop("kind")
                if kind == "end":
                    self._end = content
                else:
                    self.frames.put((kind, content))
        if len(self._buffer) >= self._end["size"] and not self.complete:
            self.complete = True
            self.frames.put(("end", (bytes(self._buffer), self._end["signature"])))


def raised(answer: Mapping[str, Any], shown: Mapping[str, Any] | None) -> BaseException | None:
    """The exception of the cell, with the traceback that the companion saw."""
    if not answer["text"]:
        return None
    error: BaseException
    try:
        error = pickle.loads(answer["error"])  # noqa: S301 - verified before
    except Exception:  # noqa: BLE001 - classes that are not here, or what could not be packed
        name, _, message = answer["text"].partition(": ")
        error = RemoteError(name, message, "")
    if shown is not None:
        trace = list(shown["traceback"])
        error._render_traceback_ = lambda: trace  # type: ignore[attr-defined] # IPython asks for it
    return error
