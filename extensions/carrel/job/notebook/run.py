"""Runs a notebook cell by cell, and ends early when it is preempted.

SIGTERM reaches the kernel too (the engine sends it to every process of the task). A kernel that
handles no SIGTERM ends by it. One in which ``carrel.checkpoint`` listens goes on, so that its
cell can save; it is interrupted only when the grace period is nearly over.
"""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from carrel.job.notebook import output, source
from carrel.job.notebook.kernel import Kernel, name_for
from carrel.job.notebook.output import ExecutedNotebook
from carrel.job.notebook.reporting import FAILED, NotebookProblem, NotebookProgress, Preempted
from carrel.job.notebook.source import Notebook
from carrel.job.notebook.spec import RunSpec
from carrel.job.result import hand_back

RESTART_POINT: Final = "restart-point"
ALWAYS: Final = frozenset({"always-run", source.DEFAULTS, source.GIVEN})
SAVE_SECONDS: Final = 5.0
SAVE_SHARE: Final = 20
"""Saving while a cell runs takes at most one part in so many of the time."""
SIGTERM_SECONDS: Final = 1.0
DYING_SECONDS: Final = 2.0
LAST_SECONDS: Final = 3.0
LONGEST_VALUE: Final = 500


class NotebookAttempt:
    """An attempt of a notebook job.

    Args:
        spec: what to run.
        output: where the executed notebook goes.
        preempted: set by SIGTERM.
    """

    def __init__(self, spec: RunSpec, output: ExecutedNotebook, preempted: asyncio.Event) -> None:
        self._spec, self._output, self._preempted = spec, output, preempted
        self.notebook, self._begin = self._beginning()
        self._kernel_name = name_for(self.notebook, spec.kernel)
        resumed = self._begin if spec.attempt else None
        self.progress = NotebookProgress(len(self.notebook.cells), str(output.path), resumed)
        self.done = self._begin
        self._changed = False

    def _beginning(self) -> tuple[Notebook, int]:
        spec = self._spec
        found = output.load_restart_point(spec.kept) if spec.attempt else None
        if found is None:
            notebook = source.read(source.find(spec))
            source.clear(notebook)
            source.inject(notebook, spec.parameters)
            found = notebook, 0
            output.save_restart_point(spec.kept, notebook, 0)
        source.clear(found[0], found[1])
        return found

    async def run(self) -> None:
        """Run to the end. Raises ``NotebookProblem`` or ``Preempted``; all was saved before."""
        folder = source.working_folder(self._spec)
        kernel = Kernel(self.notebook, self._kernel_name, folder, self._spec.cell_timeout)
        kernel.cells.on_message = self._message_seen
        self._mark("running")
        try:
            self.progress.done(self.done)
            async with self._saving(kernel):
                await self._started(kernel)
                await self._cells(kernel)
            self._mark("succeeded")
        except Preempted:
            self._mark("preempted")
            raise
        except NotebookProblem as problem:
            self._mark("failed")
            self.progress.failed(problem, self.done)
            raise
        finally:
            try:
                self._save(kernel)
            finally:
                await kernel.close()

    async def _started(self, kernel: Kernel) -> None:
        try:
            await kernel.start()
        except NotebookProblem:
            if await self._was_preempted():
                raise Preempted from None
            raise

    async def _cells(self, kernel: Kernel) -> None:
        for index, cell in enumerate(self.notebook.cells):
            again = index < self._begin
            if again and not source.tags(cell) & ALWAYS:
                continue
            if not again and RESTART_POINT in source.tags(cell) and index > 0:
                output.save_restart_point(self._spec.kept, self.notebook, index)
            if self._preempted.is_set():
                raise Preempted
            if source.runs(cell):
                self.progress.starts(index)
                await self._cell(kernel, index, cell)
            if not again:
                self.done = index + 1
                self.progress.done(self.done)
                if source.runs(cell):
                    self._save(kernel)

    async def _cell(self, kernel: Kernel, index: int, cell: Notebook) -> None:
        count = kernel.cells.code_cells_executed + 1
        work = asyncio.ensure_future(
            kernel.cells.async_execute_cell(cell, index, execution_count=count)
        )
        signal_wait = asyncio.ensure_future(self._preempted.wait())
        await asyncio.wait({work, signal_wait}, return_when=asyncio.FIRST_COMPLETED)
        signal_wait.cancel()
        if not work.done():
            await self._end_cell(kernel, work)
        try:
            await work
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            if await self._was_preempted():
                raise Preempted from None
            raise self._problem(error, index) from error

    async def _end_cell(self, kernel: Kernel, work: "asyncio.Future[Any]") -> None:
        """Preempted while a cell runs: let the cell save, then end it."""
        long = self._spec.grace_seconds - 2 * LAST_SECONDS if kernel.listens() else DYING_SECONDS
        deadline = time.monotonic() + max(long, 0.0)
        while time.monotonic() < deadline and await kernel.alive():
            if (await asyncio.wait({work}, timeout=0.1))[0]:
                return
        if await kernel.alive():
            await kernel.interrupt()
            if (await asyncio.wait({work}, timeout=LAST_SECONDS))[0]:
                return
        work.cancel()
        with contextlib.suppress(Exception):  # the job is preempted, whatever the cell raises
            await work
        raise Preempted

    async def _was_preempted(self) -> bool:
        """Whether the kernel ended because of a preemption.

        SIGTERM may reach the kernel a moment before this process.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SIGTERM_SECONDS):
                await self._preempted.wait()
        return self._preempted.is_set()

    def _problem(self, error: Exception, index: int) -> NotebookProblem:
        where = f"cell {index + 1} of {len(self.notebook.cells)}"
        if isinstance(error, CellExecutionError):
            what = f"{error.ename}: {error.evalue}" if error.evalue else str(error.ename)
            sentence = f"Cell {where.removeprefix('cell ')} failed: {what[:LONGEST_VALUE]}"
            return NotebookProblem("cell_failed", sentence, FAILED)
        if isinstance(error, CellTimeoutError):
            limit = f"{self._spec.cell_timeout:g} s"
            sentence = f"Cell {where.removeprefix('cell ')} ran for longer than {limit}, its limit."
            return NotebookProblem("cell_timed_out", sentence, FAILED)
        sentence = f"The kernel died in {where}; often that is because its memory was used up."
        return NotebookProblem("kernel_died", sentence, FAILED)

    def _message_seen(self) -> None:
        self._changed = True

    def _mark(self, state: str) -> None:
        spec = self._spec
        facts: dict[str, str | int] = {"job": spec.job, "project": spec.project}
        facts |= {"uid": spec.uid, "state": state}
        if spec.attempt:
            facts |= {"attempt": spec.attempt, "resumed_from": self._begin + 1}
        self.notebook.metadata["carrel"] = facts

    def _save(self, kernel: Kernel) -> None:
        self._changed = False
        kernel.cells.set_widgets_metadata()
        self._output.save(self.notebook)

    @contextlib.asynccontextmanager
    async def _saving(self, kernel: Kernel) -> AsyncIterator[None]:
        """Save outputs of a running cell every few seconds."""
        task = asyncio.create_task(self._save_now_and_then(kernel))
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, NotebookProblem):
                await task  # a full disk is found and reported by the next save

    async def _save_now_and_then(self, kernel: Kernel) -> None:
        pause = SAVE_SECONDS
        while True:
            await asyncio.sleep(pause)
            if self._changed:
                began = time.monotonic()
                self._save(kernel)
                pause = max(SAVE_SECONDS, SAVE_SHARE * (time.monotonic() - began))


async def run(spec: RunSpec) -> None:
    """Run a notebook to its end, or until SIGTERM."""
    preempted = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, preempted.set)
    output = ExecutedNotebook(spec)
    work = NotebookAttempt(spec, output, preempted)
    try:
        await work.run()
    finally:
        if output.handed_back and not preempted.is_set():
            await asyncio.to_thread(hand_back, source.text(work.notebook))
