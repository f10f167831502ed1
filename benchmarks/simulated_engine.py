"""An engine that starts no process: a task "runs" for the seconds that its command asks to sleep.

Everything else is the contract's: a task id starts once, a stop waits for the grace period, what
happens is told as it happens. A task that would end by itself within its grace period does so,
as a job does that makes use of it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from carrel_scheduler.engines.contract import (
    AlreadyStarted,
    EngineError,
    ExecSession,
    LogRequest,
    TaskId,
    TaskPhase,
    TaskSpec,
    TaskStatus,
    UnknownTask,
)


class SimulatedEngine:
    """See ``engines.contract.Engine``. Commands are ``["sleep", "<seconds>"]``."""

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._ever: set[TaskId] = set()
        self._tasks: dict[TaskId, TaskStatus] = {}
        self._ends: dict[TaskId, asyncio.TimerHandle] = {}
        self._watchers: list[asyncio.Queue[TaskStatus]] = []

    async def start(self, task: TaskSpec) -> None:
        """Begin to "run" it."""
        if task.id in self._ever:
            raise AlreadyStarted(str(task.id))
        try:
            program, seconds = task.command
            lasts = float(seconds)
        except ValueError as error:
            raise EngineError(f"{task.command} is not `sleep <seconds>`") from error
        if program != "sleep":
            raise EngineError(f"{program} is not simulated; `sleep` is")
        self._ever.add(task.id)
        now = self._clock()
        self._tell(
            TaskStatus(
                id=task.id,
                phase=TaskPhase.RUNNING,
                node=task.node,
                started_at=now,
                devices=task.devices,
            )
        )
        self._end_in(lasts, task.id, 0)

    def _end_in(self, seconds: float, task: TaskId, signal: int) -> None:
        loop = asyncio.get_running_loop()
        self._ends[task] = loop.call_later(seconds, self._end, task, signal)

    def _end(self, task: TaskId, signal: int) -> None:
        del self._ends[task]
        was = self._tasks[task]
        self._tell(
            TaskStatus(
                id=task,
                phase=TaskPhase.ENDED,
                node=was.node,
                started_at=was.started_at,
                ended_at=self._clock(),
                exit_code=None if signal else 0,
                signal=signal,
                devices=was.devices,
            )
        )

    def _tell(self, status: TaskStatus) -> None:
        self._tasks[status.id] = status
        for watcher in self._watchers:
            watcher.put_nowait(status)

    def interrupt_start(self, task: TaskId) -> None:
        """Do nothing: every start is done at once."""

    async def stop(self, task: TaskId, grace_seconds: float) -> None:
        """End it after the grace period, or earlier if it ends by itself."""
        if task not in self._tasks:
            raise UnknownTask(str(task))
        end = self._ends.get(task)
        if end is not None and end.when() > asyncio.get_running_loop().time() + grace_seconds:
            end.cancel()
            self._end_in(grace_seconds, task, 9)

    async def list(self) -> Sequence[TaskStatus]:
        """List the tasks that are not forgotten."""
        return tuple(self._tasks.values())

    def watch(self) -> AsyncIterator[TaskStatus]:
        """Yield changes from now on."""
        changes: asyncio.Queue[TaskStatus] = asyncio.Queue()
        self._watchers.append(changes)

        async def stream() -> AsyncIterator[TaskStatus]:
            while True:
                yield await changes.get()

        return stream()

    async def forget(self, task: TaskId) -> None:
        """Drop the record of an ended task; that it was started is remembered."""
        if task in self._ends:
            raise EngineError(f"{task} still runs")
        if self._tasks.pop(task, None) is None:
            raise UnknownTask(str(task))

    async def remove_workload(self, workload_uid: str) -> None:
        """No effect: there are no files."""

    async def logs(self, workload_uid: str, _request: LogRequest) -> AsyncIterator[bytes]:
        """Yield a line that says why there are no others."""
        yield f"{workload_uid} is simulated and writes nothing\n".encode()

    async def exec(self, task: TaskId, command: Sequence[str]) -> ExecSession:
        """Refused: there is nothing to join."""
        raise EngineError(f"{task} is simulated: {command} cannot run beside it")

    async def close(self) -> None:
        """End every run at once: nothing goes on without its engine."""
        for end in self._ends.values():
            end.cancel()
        self._ends.clear()
