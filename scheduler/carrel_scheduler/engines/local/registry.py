"""What the engine knows of its tasks, kept true by the kernel's notices of their folders.

A task's folder is watched from before it is read, so no change falls between. The kernel also
tells when the last holder of a lock is gone, which is how the death of a supervisor is noticed.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from carrel_scheduler.engines.contract import (
    EngineError,
    TaskId,
    TaskPhase,
    TaskStatus,
    UnknownTask,
)
from carrel_scheduler.engines.local import inotify, truth
from carrel_scheduler.engines.local.cgroups import Limiter
from carrel_scheduler.engines.local.layout import Layout, remove_tree
from carrel_scheduler.engines.local.leftovers import end_leftovers
from carrel_scheduler.engines.local.shim import tree

FORGOTTEN: Final = "forgotten"
RETRY_SECONDS: Final = 5.0
_TELLING: Final = {"pid.json", "exit.json", ""}
_log = logging.getLogger(__name__)


class Registry:
    """Statuses of all recorded tasks.

    Args:
        layout: where the records are.
        limiter: knows the control groups of lost tasks.
        clock: epoch seconds.
        publish: called with each change.
    """

    def __init__(
        self,
        layout: Layout,
        limiter: Limiter,
        clock: Callable[[], float],
        publish: Callable[[TaskStatus], None],
    ) -> None:
        self._layout, self._limiter = layout, limiter
        self._clock, self._publish = clock, publish
        self._statuses: dict[TaskId, TaskStatus] = {}
        self._unwatch: dict[TaskId, Callable[[], None]] = {}
        self._settling: dict[TaskId, asyncio.Task[None]] = {}
        self._rechecks: set[asyncio.Task[None]] = set()
        self.notices = inotify.Inotify()

    def __getitem__(self, task: TaskId) -> TaskStatus:
        """Raises ``UnknownTask``."""
        if task not in self._statuses:
            raise UnknownTask(f"no task {task} here")
        return self._statuses[task]

    def get(self, task: TaskId) -> TaskStatus | None:
        """The status, if the task is known."""
        return self._statuses.get(task)

    async def scan(self) -> list[TaskStatus]:
        """Look at every record again; what is left of lost tasks is ended first."""
        for task in list(self._layout.recorded()):
            known = self._statuses.get(task)
            if known is None:
                self.adopt(task)
            elif known.phase is not TaskPhase.ENDED:
                self.refresh(task)
        if self._settling:
            await asyncio.wait(self._settling.values(), timeout=RETRY_SECONDS)
        return list(self._statuses.values())

    def adopt(self, task: TaskId) -> None:
        """Begin to follow a recorded task."""
        folder = self._layout.task(task)
        if task in self._statuses or os.path.lexists(f"{folder}/{FORGOTTEN}"):
            return
        if not os.path.lexists(f"{folder}/exit.json"):
            mask = inotify.MOVED_IN | inotify.WRITER_CLOSED
            listener = _Listener(self, task)
            self._unwatch[task] = self.notices.watch(folder, mask, listener)
        self.refresh(task)

    def refresh(self, task: TaskId) -> None:
        """Read a task's folder and tell what changed."""
        status = truth.read_status(self._layout.task(task), task)
        if status is not None:
            self._set(status)
        elif task not in self._settling:
            self._settling[task] = asyncio.create_task(self._settle(task))

    def _set(self, status: TaskStatus) -> None:
        known = self._statuses.get(status.id)
        if known == status or (known is not None and known.phase is TaskPhase.ENDED):
            return
        self._statuses[status.id] = status
        if status.phase is TaskPhase.ENDED and status.id in self._unwatch:
            self._unwatch.pop(status.id)()
        self._publish(status)

    async def _settle(self, task: TaskId) -> None:
        """End what is left of a lost task, then record the loss."""
        folder = self._layout.task(task)
        while True:
            started = truth.read_started(folder)
            try:
                await end_leftovers(folder, started, self._limiter.find(str(task)))
                break
            except EngineError as error:
                _log.error("%s", error)
                self._set(self._undead(task, started, str(error)))
            await asyncio.sleep(RETRY_SECONDS)
        await asyncio.to_thread(remove_tree, folder / "tmp")
        if truth.read_ended(folder) is None:
            truth.record_loss(folder, self._clock())
        del self._settling[task]
        self.refresh(task)

    def _undead(self, task: TaskId, started: truth.Started | None, message: str) -> TaskStatus:
        record = truth.read_record(self._layout.task(task))
        status = TaskStatus(
            id=task,
            phase=TaskPhase.RUNNING,
            node=record.node,
            devices=record.devices,
            message=message,
        )
        if started is None:
            return status
        return msgspec.structs.replace(status, pid=started.pid, started_at=started.started_at)

    def noticed(self, task: TaskId, name: str) -> None:
        """The kernel says that a file of the task's folder changed."""
        if self.notices.closed:
            return
        if name in _TELLING:
            self.refresh(task)
        elif name == "lock":
            recheck = asyncio.create_task(self._recheck(self._layout.task(task), task))
            self._rechecks.add(recheck)
            recheck.add_done_callback(self._rechecks.discard)

    async def _recheck(self, folder: Path, task: TaskId) -> None:
        """The notice of a closed lock comes just before the kernel frees it."""
        for _ in range(tree.REMOVAL_TRIES):
            if not truth.Lock.held(folder):
                break
            await asyncio.sleep(0.002)
        if task in self._unwatch and folder.exists():
            self.refresh(task)

    def drop(self, task: TaskId) -> None:
        """Know a task no more."""
        self._statuses.pop(task, None)
        if task in self._unwatch:
            self._unwatch.pop(task)()

    def close(self) -> None:
        """Stop following."""
        for running in (*self._settling.values(), *self._rechecks):
            running.cancel()
        self.notices.close()


class _Listener:
    """Ties notices of one folder to its task; comparable, so that it can be taken back."""

    def __init__(self, registry: Registry, task: TaskId) -> None:
        self._registry, self._task = registry, task

    def __call__(self, name: str) -> None:
        self._registry.noticed(self._task, name)
