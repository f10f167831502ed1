"""The kernel of a run: start it, run cells, interrupt it, end it.

``nbclient`` runs the cells. Its own way of starting a kernel takes the signal handlers of the
process, which here belong to the job; so the kernel is started and ended by the same steps here.
"""

import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from typing_extensions import override

from carrel.job.notebook.reporting import NotebookProblem
from carrel.job.notebook.source import Notebook

USUAL: Final = "python3"
STARTUP_SECONDS: Final = 120
SIGTERM_BIT: Final = 1 << 14
COLORS: Final = re.compile(r"\x1b\[[0-9;]*m")


class Cells(NotebookClient):
    """Runs cells; their text also goes to the log. ``on_message`` is called for every message."""

    on_message: Callable[[], object] = staticmethod(lambda: None)

    @override
    def process_message(self, msg: dict[str, Any], cell: Notebook, cell_index: int) -> Any:
        """Print text and errors to the log, then handle the message."""
        content = msg["content"]
        if msg["msg_type"] == "stream":
            target = sys.stderr if content["name"] == "stderr" else sys.stdout
            target.write(content["text"])
            target.flush()
        elif msg["msg_type"] == "error":
            print(COLORS.sub("", "\n".join(content["traceback"])), file=sys.stderr, flush=True)  # noqa: T201 - the log of the job
        self.on_message()
        return super().process_message(msg, cell, cell_index)


def name_for(notebook: Notebook, requested: str) -> str:
    """The kernel's name. Raises ``NotebookProblem`` when there is none of that name."""
    name = requested or str(notebook.metadata.get("kernelspec", {}).get("name") or USUAL)
    specs = KernelSpecManager()
    try:
        specs.get_kernel_spec(name)
    except NoSuchKernel:
        known = ", ".join(f"`{one}`" for one in sorted(specs.find_kernel_specs()))
        there = f"there are {known}" if known else "there is none at all"
        raise NotebookProblem(
            "no_kernel", f"There is no kernel `{name}` here; {there}. Choose with `--kernel`."
        ) from None
    return name


class Kernel:
    """A kernel process, reached by sockets in a folder that only its user can enter.

    Args:
        notebook: whose cells it runs.
        name: of the kernel.
        folder: where it runs.
        cell_timeout: seconds for each cell; ``None``: no limit.
    """

    def __init__(
        self, notebook: Notebook, name: str, folder: Path, cell_timeout: float | None
    ) -> None:
        self._sockets = tempfile.mkdtemp(prefix="carrel-kernel-")
        self._manager = AsyncKernelManager(
            kernel_name=name, transport="ipc", ip=f"{self._sockets}/kernel"
        )
        self._folder = folder
        self.cells = Cells(
            notebook,
            km=self._manager,
            timeout=cell_timeout,
            startup_timeout=STARTUP_SECONDS,
            record_timing=True,
        )

    async def start(self) -> None:
        """Start the kernel and wait until it answers. Raises ``NotebookProblem``."""
        self.cells.reset_execution_trackers()
        try:
            await self.cells.async_start_new_kernel(cwd=str(self._folder))
            await self.cells.async_start_new_kernel_client()
        except (OSError, RuntimeError) as error:
            raise NotebookProblem(
                "kernel_not_started",
                f"The kernel `{self._manager.kernel_name}` did not start: {error}.",
            ) from error

    async def close(self) -> None:
        """Kill the kernel and everything that it started."""
        if self.cells.kc is not None:
            self.cells.kc.stop_channels()
        if self._manager.has_kernel:
            await self._manager.shutdown_kernel(now=True)
        shutil.rmtree(self._sockets, ignore_errors=True)

    async def alive(self) -> bool:
        """Whether its process runs."""
        return bool(await self._manager.is_alive())

    async def interrupt(self) -> None:
        """Interrupt the running cell, as the stop button does."""
        await self._manager.interrupt_kernel()

    def listens(self) -> bool:
        """Whether the kernel's process has a handler of SIGTERM, so that it may save its work."""
        process = getattr(self._manager.provisioner, "process", None)
        if process is None:
            return False
        try:
            status = Path(f"/proc/{process.pid}/status").read_text()
        except OSError:
            return False
        found = re.search(r"^SigCgt:\s*([0-9a-f]+)$", status, re.MULTILINE)
        return found is not None and bool(int(found[1], 16) & SIGTERM_BIT)
