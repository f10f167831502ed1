"""Tasks that wait for their image: they have no folder yet and can be ended at once.

A start that needs an image returns at once; the engine reports the task as starting, with how far
the image is, and then as running, or as ended with the reason. A scheduler that ends meanwhile
leaves no trace of such a task, so the next one starts it again.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from carrel_scheduler.engines.contract import (
    AlreadyStarted,
    EngineError,
    TaskId,
    TaskPhase,
    TaskSpec,
    TaskStatus,
)

log = logging.getLogger(__name__)
MIB: Final = 1024**2
ENDED_BY_REQUEST: Final = "it was ended while its image was pulled"
Tell = Callable[[int, int], None]
Start = Callable[[TaskSpec, Tell], Awaitable[None]]


class ImageStarts:
    """The waiting tasks of one engine.

    Args:
        start: pulls the image and starts the task.
        publish: takes changes of a task's status.
        clock: epoch seconds.
    """

    def __init__(
        self, start: Start, publish: Callable[[TaskStatus], None], clock: Callable[[], float]
    ) -> None:
        self._start, self._publish, self._clock = start, publish, clock
        self._waiting: dict[TaskId, TaskStatus] = {}
        self._running: dict[TaskId, asyncio.Task[None]] = {}

    def begin(self, task: TaskSpec) -> None:
        """Begin to wait. Raises ``AlreadyStarted``."""
        if task.id in self._waiting:
            raise AlreadyStarted(f"task {task.id} was started before")
        self._waiting[task.id] = TaskStatus(
            id=task.id, phase=TaskPhase.STARTING, node=task.node, devices=task.devices
        )
        running = asyncio.create_task(self._run(task))
        self._running[task.id] = running
        running.add_done_callback(lambda _: self._running.pop(task.id, None))

    async def _run(self, task: TaskSpec) -> None:
        loop, message = asyncio.get_running_loop(), f"pulling image {task.image}"
        shown = [0.0]

        def tell(done: int, total: int) -> None:
            if time.monotonic() >= shown[0] + 1.0:
                shown[0] = time.monotonic()
                text = f"{message}: {done // MIB} of {total // MIB} MiB"
                loop.call_soon_threadsafe(self._say, task.id, text)

        try:
            await self._start(task, tell)
        except EngineError as error:
            self._end(task.id, str(error))
        except Exception as error:  # whatever it is, the task must not wait for ever
            log.exception("task %s could not be started in its image", task.id)
            self._end(task.id, f"image={task.image!r}: cannot be made ready here: {error}")
        else:
            self._waiting.pop(task.id, None)

    def _say(self, task: TaskId, message: str) -> None:
        if task in self._waiting:
            known = self._waiting[task]
            self._waiting[task] = TaskStatus(
                id=task,
                phase=TaskPhase.STARTING,
                node=known.node,
                devices=known.devices,
                message=message,
            )
            self._publish(self._waiting[task])

    def _end(self, task: TaskId, message: str) -> None:
        known = self._waiting.pop(task, None)
        if known is not None:
            self._publish(
                TaskStatus(
                    id=task,
                    phase=TaskPhase.ENDED,
                    node=known.node,
                    devices=known.devices,
                    ended_at=self._clock(),
                    message=message,
                )
            )

    def statuses(self) -> Sequence[TaskStatus]:
        """The states of the waiting tasks."""
        return list(self._waiting.values())

    def waits(self, task: TaskId) -> bool:
        """Whether a task still may be ended without a trace."""
        return task in self._waiting

    def end(self, task: TaskId) -> None:
        """End a waiting task."""
        self._end(task, ENDED_BY_REQUEST)

    async def close(self) -> None:
        """Wait for starts that are under way in threads; nothing is pulled any more."""
        self._waiting.clear()
        for running in list(self._running.values()):
            running.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)
