"""What the engine knows of its tasks, kept true by the kernel's notices of their folders.

A task's folder is watched from before it is read, so no change falls between. The kernel also
tells when the last holder of a lock is gone, which is how the death of a supervisor is noticed.

Looking at a task may fail for a while (no descriptors, no memory): it is looked at again until that
succeeds. A list of tasks is complete or fails, because who is told that a task is not there may
start it once more.
"""

import asyncio
import contextlib
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
ENDING: Final = "its supervisor is gone; what is left of it is ended"
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
        self._listeners: dict[TaskId, _Listener] = {}
        self._unwatch: dict[TaskId, Callable[[], None]] = {}
        self._settling: dict[TaskId, asyncio.Task[None]] = {}
        self._rechecks: set[asyncio.Task[None]] = set()
        self.notices = inotify.Inotify()

    def __getitem__(self, task: TaskId) -> TaskStatus:
        """Raises ``UnknownTask``, and ``EngineError`` if it is here and cannot be looked at."""
        if task not in self._statuses:
            try:
                self.look(task)
            except OSError as error:
                raise EngineError(f"task {task} cannot be looked at: {error}") from error
        if task in self._settling and task not in self._statuses:
            self._set(self._undead(task, ENDING))
        if task not in self._statuses:
            raise UnknownTask(f"no task {task} here")
        return self._statuses[task]

    async def scan(self) -> list[TaskStatus]:
        """Look at every record again; what is left of lost tasks is ended first.

        Raises ``EngineError`` if one cannot be looked at.
        """
        try:
            for task in list(self._layout.recorded()):
                known = self._statuses.get(task)
                if known is None or known.phase is not TaskPhase.ENDED:
                    self.look(task)
        except OSError as error:
            raise EngineError(f"the records of tasks cannot be read: {error}") from error
        if self._settling:
            await asyncio.wait(self._settling.values(), timeout=RETRY_SECONDS)
        for task in self._settling.keys() - self._statuses.keys():
            self._set(self._undead(task, ENDING))
        return list(self._statuses.values())

    def adopt(self, task: TaskId) -> None:
        """Begin to follow a recorded task; if that fails, it is tried again soon."""
        self.notices.look(self._listener(task))

    def _listener(self, task: TaskId) -> "_Listener":
        return self._listeners.setdefault(task, _Listener(self, task))

    def look(self, task: TaskId) -> None:
        """Read a task's folder, watching it from before, and tell what changed."""
        folder = self._layout.task(task)
        if not os.path.lexists(folder):
            self.drop(task)  # removed by another scheduler
            return
        if task not in self._statuses and os.path.lexists(f"{folder}/{FORGOTTEN}"):
            return
        if task not in self._unwatch and not os.path.lexists(f"{folder}/exit.json"):
            mask = inotify.MOVED_IN | inotify.WRITER_CLOSED
            self._unwatch[task] = self.notices.watch(folder, mask, self._listener(task))
        status = truth.read_status(folder, task)
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
        """End what is left of a lost task, then record the loss; tried until that is done."""
        folder = self._layout.task(task)
        while folder.exists():
            try:
                await self._end(task, folder)
                break
            except Exception as error:  # noqa: BLE001 - shown to people, and tried again
                self._trouble(task, error)
            await asyncio.sleep(RETRY_SECONDS)
        del self._settling[task]
        self.adopt(task)

    async def _end(self, task: TaskId, folder: Path) -> None:
        groups = self._limiter.find(str(task))
        await end_leftovers(folder, truth.read_started(folder), groups)
        try:
            await asyncio.to_thread(remove_tree, folder / "tmp")
        except OSError as error:
            _log.warning("what is left of /tmp of task %s stays: %s", task, error)
        if truth.read_ended(folder) is None:
            truth.record_loss(folder, self._clock())

    def _trouble(self, task: TaskId, error: Exception) -> None:
        """Say in the log and in the status why a lost task is not yet known to have ended."""
        said = f"its end cannot be recorded: {error}"
        known = self._statuses.get(task)
        if known is None or known.message != said:
            expected = isinstance(error, EngineError | OSError)
            _log.error("task %s: %s", task, said, exc_info=None if expected else error)
            self._set(self._undead(task, said))

    def _undead(self, task: TaskId, message: str) -> TaskStatus:
        known = self._statuses.get(task)
        if known is None:
            known = TaskStatus(id=task, phase=TaskPhase.RUNNING, node="")
            with contextlib.suppress(OSError):
                known = truth.described(self._layout.task(task), known)
        return msgspec.structs.replace(known, phase=TaskPhase.RUNNING, message=message)

    def noticed(self, task: TaskId, name: str) -> None:
        """The kernel says that a file of the task's folder changed."""
        if self.notices.closed:
            return
        if name in _TELLING:
            self.look(task)
        elif name == "lock":
            recheck = asyncio.create_task(self._recheck(self._layout.task(task), task))
            self._rechecks.add(recheck)
            recheck.add_done_callback(self._rechecks.discard)

    async def _recheck(self, folder: Path, task: TaskId) -> None:
        """The notice of a closed lock comes just before the kernel frees it."""
        with contextlib.suppress(OSError):  # looking fails in the same way then, and is repeated
            for _ in range(tree.REMOVAL_TRIES):
                if not truth.Lock.held(folder):
                    break
                await asyncio.sleep(0.002)
        if task in self._unwatch:
            self.adopt(task)

    def drop(self, task: TaskId) -> None:
        """Know a task no more."""
        self._statuses.pop(task, None)
        if task in self._unwatch:
            self._unwatch.pop(task)()
        if task in self._listeners:
            self.notices.forget(self._listeners.pop(task))

    def close(self) -> None:
        """Stop following."""
        for running in (*self._settling.values(), *self._rechecks):
            running.cancel()
        self.notices.close()


class _Listener:
    """Ties notices of one folder to its task; one for each task, so that it can be taken back."""

    def __init__(self, registry: Registry, task: TaskId) -> None:
        self._registry, self._task = registry, task

    def __call__(self, name: str) -> None:
        self._registry.noticed(self._task, name)
