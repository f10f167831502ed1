"""Local engines over one folder, and the end of everything that a test started with them."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from carrel_scheduler.engines.contract import TaskSpec
from carrel_scheduler.engines.local.engine import LocalEngine
from carrel_scheduler.engines.local.launch import TaskOptions
from carrel_scheduler.engines.local.shim import process_tree
from carrel_scheduler.node.mig import MigDevices

NODE = "desk-1"
TIMEOUT_SECONDS = 120.0
AS_ROOT = os.geteuid() == 0


class LocalEngines:
    """Opens local engines over the same state folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.node = root, NODE
        self._open: list[LocalEngine] = []

    async def open(self, **options: Any) -> LocalEngine:
        """Open another engine over the folder."""
        engine = LocalEngine(self.root, self.node, options=TaskOptions(**options))
        self._open.append(engine)
        return engine

    async def open_divided(self, mig: MigDevices) -> LocalEngine:
        """Open another engine over the folder, which divides GPUs."""
        engine = LocalEngine(self.root, self.node)
        engine.divide_gpus(mig)
        self._open.append(engine)
        return engine

    async def open_limited(self, **given: Any) -> LocalEngine:
        """Open another engine over the folder, with ways of its own to limit tasks."""
        engine = LocalEngine(self.root, self.node, **given)
        self._open.append(engine)
        return engine

    async def lose(self, task: TaskSpec) -> None:
        """Kill a task's supervisor, which nobody but a crash of the machine does."""
        wanted = self.folder(task.id.workload_uid, task.id.index, task.id.attempt)
        for pid, folder in _folders():
            if folder == wanted:
                os.kill(pid, signal.SIGKILL)

    async def clean(self) -> None:
        """Close all engines and end all tasks."""
        for engine in self._open:
            await engine.close()
        engine = LocalEngine(self.root, self.node)

        async def at_rest() -> bool:
            for pid in supervisors(self.root):
                with contextlib.suppress(ProcessLookupError):  # it just ended
                    os.kill(pid, signal.SIGKILL)
            ended = all(status.phase == "ended" for status in await engine.list())
            return ended and not supervisors(self.root)

        await until(at_rest)
        await engine.close()
        shutil.rmtree(self.root)

    async def no_supervisors(self) -> None:
        """Wait until the last supervisor has cleaned up and gone."""

        async def gone() -> bool:
            return supervisors(self.root) == []

        await until(gone)

    def folder(self, uid: str = "w1", index: int = 0, attempt: int = 0) -> Path:
        """The record of a task."""
        return self.root / "tasks" / uid / f"{index}-{attempt}"


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for what nobody tells us of, for a bounded time."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not await condition():  # noqa: ASYNC110 - other processes set no event of ours
            await asyncio.sleep(0.02)


def supervisors(root: Path) -> list[int]:
    """Supervisors at work in a state folder, found by the folder that they are in."""
    tasks = root / "tasks"
    return [pid for pid, folder in _folders() if folder.parent.parent == tasks]


def _folders() -> Iterator[tuple[int, Path]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                yield int(entry.name), (entry / "cwd").readlink()
            except OSError:
                continue  # ended while we looked


def marked(folder: Path) -> list[int]:
    """Living processes that carry a task's folder in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or not process_tree.start_time(int(entry.name)):
            continue
        environment = process_tree.environment(int(entry.name))
        if f"CARREL_TASK_DIR={folder / 'work'}".encode() in environment:
            found.append(int(entry.name))
    return found
