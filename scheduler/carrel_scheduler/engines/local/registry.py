"""The statuses of the engine's tasks, kept current by inotify events of their folders.

A task's folder is watched from before it is read, so no change is missed. The kernel also reports
when the last holder of a lock is gone, which is how the death of a supervisor is noticed: the task
is lost then, and its orphans are killed before that is recorded. A sandbox and the main process die
with the supervisor by themselves; where there is no sandbox, other processes are found by control
group, by session, and by the task's folder in the environment that they inherited.

Reading a task's state may fail for a while (no descriptors, no memory): it is retried until that
succeeds. A list of tasks is complete or fails, because a caller that is told that a task is not
there may start it once more.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
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
from carrel_scheduler.engines.local import inotify, task_state
from carrel_scheduler.engines.local.cgroups import Groups, Limiter
from carrel_scheduler.engines.local.shim import process_tree
from carrel_scheduler.engines.local.task_state import Started, StateLayout, remove_tree

FORGOTTEN: Final = "forgotten"
RETRY_SECONDS: Final = 5.0
ENDING: Final = "its supervisor is gone; what is left of it is ended"
KILL_ROUNDS: Final = 500
KILL_ROUND_SECONDS: Final = 0.01
_STATE_FILES: Final = {"pid.json", "exit.json", ""}
_log = logging.getLogger(__name__)


class Registry:
    """Statuses of all recorded tasks; ``publish`` is called with each change."""

    def __init__(
        self,
        layout: StateLayout,
        limiter: Limiter,
        clock: Callable[[], float],
        publish: Callable[[TaskStatus], None],
    ) -> None:
        self._layout, self._limiter = layout, limiter
        self._clock, self._publish = clock, publish
        self._statuses: dict[TaskId, TaskStatus] = {}
        self._listeners: dict[TaskId, inotify.Listener] = {}
        self._unwatch: dict[TaskId, Callable[[], None]] = {}
        self._settling: dict[TaskId, asyncio.Task[None]] = {}
        self._rechecks: set[asyncio.Task[None]] = set()
        self.notices = inotify.Inotify()

    def __getitem__(self, task: TaskId) -> TaskStatus:
        """The task of this id. Raises ``UnknownTask``, and ``EngineError`` if it cannot be read."""
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
        """Read every record again; orphans of lost tasks are killed first.

        Raises ``EngineError`` if one cannot be read.
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

    def statuses(self) -> list[TaskStatus]:
        """The last known states; may be called from any thread."""
        return list(self._statuses.values())

    def adopt(self, task: TaskId) -> None:
        """Begin to follow a recorded task; retried soon after a failure."""
        self.notices.call(self._listener(task))

    def _listener(self, task: TaskId) -> inotify.Listener:
        return self._listeners.setdefault(task, partial(self._noticed, task))

    def look(self, task: TaskId) -> None:
        """Watch a task's folder, read it, and publish what changed."""
        folder = self._layout.task(task)
        if not os.path.lexists(folder):
            self.drop(task)  # removed by another scheduler
            return
        if task not in self._statuses and os.path.lexists(f"{folder}/{FORGOTTEN}"):
            return
        if task not in self._unwatch and not os.path.lexists(f"{folder}/exit.json"):
            mask = inotify.MOVED_IN | inotify.WRITER_CLOSED
            self._unwatch[task] = self.notices.watch(folder, mask, self._listener(task))
        status = task_state.read_status(folder, task)
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
        """Kill the orphans of a lost task, then record the loss; retried until that is done."""
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
        await kill_orphans(folder, task_state.read_started(folder), groups)
        try:
            await asyncio.to_thread(remove_tree, folder / "tmp")
        except OSError as error:
            _log.warning("the rest of /tmp of task %s could not be removed: %s", task, error)
        if task_state.read_ended(folder) is None:
            task_state.record_loss(folder, self._clock())

    def _trouble(self, task: TaskId, error: Exception) -> None:
        """Tell in the log and in the status why the end of a lost task is not recorded."""
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
                known = task_state.described(self._layout.task(task), known)
        return msgspec.structs.replace(known, phase=TaskPhase.RUNNING, message=message)

    def _noticed(self, task: TaskId, name: str) -> None:
        """A file of the task's folder changed."""
        if self.notices.closed:
            return
        if name in _STATE_FILES:
            self.look(task)
        elif name == "lock":
            recheck = asyncio.create_task(self._recheck(self._layout.task(task), task))
            self._rechecks.add(recheck)
            recheck.add_done_callback(self._rechecks.discard)

    async def _recheck(self, folder: Path, task: TaskId) -> None:
        """Look once the lock is free: the event of its closing comes just before that."""
        with contextlib.suppress(OSError):  # looking fails in the same way then, and is repeated
            for _ in range(process_tree.REMOVAL_TRIES):
                if not task_state.Lock.held(folder):
                    break
                await asyncio.sleep(0.002)
        if task in self._unwatch:
            self.adopt(task)

    def drop(self, task: TaskId) -> None:
        """Forget a task."""
        self._statuses.pop(task, None)
        if task in self._unwatch:
            self._unwatch.pop(task)()
        if task in self._listeners:
            self.notices.forget(self._listeners.pop(task))

    def close(self) -> None:
        """Stop following all tasks."""
        for running in (*self._settling.values(), *self._rechecks):
            running.cancel()
        self.notices.close()


async def kill_orphans(folder: Path, started: Started | None, groups: Groups) -> None:
    """Kill the processes of a lost task and remove its control groups.

    Raises ``EngineError`` when a process cannot be killed: the task still runs then.
    """
    for _ in range(KILL_ROUNDS):
        left = _orphans(folder, started, groups)
        if not left:
            process_tree.remove_groups(groups.folders)
            return
        for process in left:
            process_tree.send(process, signal.SIGKILL)
        await asyncio.sleep(KILL_ROUND_SECONDS)
    pids = ", ".join(str(pid) for pid, _ in left)
    raise EngineError(f"{folder.parent.name}-{folder.name}: processes {pids} do not die")


def _orphans(folder: Path, started: Started | None, groups: Groups) -> list[process_tree.Process]:
    found = process_tree.members(groups.folders)
    if started is None or started.boot_id != process_tree.boot_id():
        return found
    if started.init:
        named = ((started.init, started.init_start), (started.pid, started.start_time))
        return found + [(pid, born) for pid, born in named if process_tree.start_time(pid) == born]
    # A session lives as long as a member; with another leader of its number it is another session.
    leader_born = process_tree.start_time(started.pid)
    session_is_ours = leader_born in (0, started.start_time)
    mark = f"CARREL_TASK_DIR={folder / 'work'}".encode()
    pids = {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()}
    for pid in sorted(pids - {os.getpid()}):
        fields = process_tree.stat_fields(pid)
        if not fields or fields[0] in ("Z", "X"):
            continue
        born, session = int(fields[19]), int(fields[3])
        main = (pid, born) == (started.pid, started.start_time)
        in_session = session_is_ours and session == started.pid and born >= started.start_time
        if main or in_session or mark in process_tree.environment(pid):
            found.append((pid, born))
    return found
