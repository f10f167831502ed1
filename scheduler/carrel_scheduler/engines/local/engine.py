"""The local engine: tasks are processes of this machine that outlive the scheduler.

The state of each task lies in its folder, written by the task's supervisor. Any number of engines,
one after the other or at once, read the same folders.
"""

import asyncio
import contextlib
import errno
import logging
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

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
from carrel_scheduler.engines.local import task_state
from carrel_scheduler.engines.local.accounts import Accounts
from carrel_scheduler.engines.local.capabilities import describe_isolation
from carrel_scheduler.engines.local.cgroups import Limiter, find_limiter
from carrel_scheduler.engines.local.gpu_memory import DriverMemory, GpuMemory
from carrel_scheduler.engines.local.images.starting import ImageStarts
from carrel_scheduler.engines.local.images.store import Image
from carrel_scheduler.engines.local.launch import Launcher, TaskOptions
from carrel_scheduler.engines.local.logs import read_log
from carrel_scheduler.engines.local.mig import device_of
from carrel_scheduler.engines.local.network.namespaces import NetworkNamespaces
from carrel_scheduler.engines.local.registry import FORGOTTEN, Registry
from carrel_scheduler.engines.local.task_state import StateLayout, write_whole
from carrel_scheduler.engines.local.terminal import (
    Beside,
    LocalPipedCommand,
    LocalTerminal,
    open_command,
    open_terminal,
)
from carrel_scheduler.engines.streams import StatusStream, Streams
from carrel_scheduler.node.contract import DeviceUse
from carrel_scheduler.node.mig import MigDevices

log = logging.getLogger("carrel_scheduler.engine")


class LocalEngine:
    """Runs tasks on this machine; see ``engines.contract.Engine`` for the methods.

    Args:
        root: the state folder, ours alone.
        node_name: the name under which the scheduler knows this machine.
        clock: epoch seconds.
        accounts: whose account a user's tasks run under; by default kept below ``root``.
        namespaces: gives each account a network of its own; by default all share the machine's.
        options: of all tasks.
        gpu_memory: keeps fractions of GPUs within their memory.
        limiter: makes the control groups of tasks; by default what the machine allows.

    Attributes:
        layout: of the state folder.
    """

    def __init__(
        self,
        root: Path,
        node_name: str,
        *,
        clock: Callable[[], float] = time.time,
        accounts: Accounts | None = None,
        namespaces: NetworkNamespaces | None = None,
        options: TaskOptions = TaskOptions(),  # noqa: B008 - it is frozen
        gpu_memory: GpuMemory | None = None,
        limiter: Limiter | None = None,
    ) -> None:
        self.layout = layout = StateLayout(root)
        layout.make()
        layout.sweep(clock())
        self._clock = clock
        self._accounts = accounts or Accounts(layout.accounts, layout.root / "homes")
        self._limiter = limiter or find_limiter(layout.root)
        self._gpu_memory = gpu_memory or GpuMemory()
        self._launcher = Launcher(
            layout,
            node_name,
            self._accounts,
            self._limiter,
            namespaces,
            options,
            self._gpu_memory,
        )
        self._mig_locks: dict[str, asyncio.Lock] = {}
        self._driver_memory = DriverMemory(layout.task)
        self._namespaces = namespaces
        self._streams = Streams()
        self._image_starts = ImageStarts(self._start_in_image, self._streams.publish, clock)
        self._terminals: dict[TaskId, list[LocalTerminal]] = {}
        self._hang_ups: set[asyncio.Task[int]] = set()
        self._registry: Registry | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def isolation(self) -> tuple[str, str]:
        """Whether users are kept apart and limits enforced, in sentences for the admin."""
        return await asyncio.to_thread(describe_isolation, self._accounts, self._limiter)

    async def holds_instances(self) -> bool:
        """Whether live tasks of an earlier scheduler hold MIG instances."""
        records = self._live_records(await self._opened())
        return any(record.mig_instance for record in records)

    def divide_gpus(self, mig: MigDevices) -> None:
        """Divide GPUs into MIG instances on demand from now on."""
        self._launcher.mig = mig

    def note_gpu_use(self, use: Sequence[DeviceUse]) -> None:
        """Tell the limiters of GPU memory what the driver holds; ``use`` was measured just now."""
        if self._registry is not None:
            self._driver_memory.note(self._registry.statuses(), use)

    @property
    def trouble(self) -> str:
        """The resource that the machine has run out of, as a sentence; empty for none."""
        return "" if self._registry is None else self._registry.notices.trouble

    async def open(self) -> None:
        """Find the tasks of earlier schedulers; called by the first verb."""
        await self._opened()

    async def _opened(self) -> Registry:
        if self._closed:
            raise EngineError("the engine is closed")
        async with self._opening:
            if self._registry is None:
                registry = Registry(self.layout, self._limiter, self._clock, self._changed)
                try:
                    found = await registry.scan()
                    await self._tidy_networks(found)
                    await asyncio.to_thread(self._limit_again, found)
                except BaseException:
                    registry.close()  # the next verb tries again with another
                    raise
                self._registry = registry
        return self._registry

    async def _tidy_networks(self, tasks: Sequence[TaskStatus]) -> None:
        """Remove the networks of users without tasks, as far as possible."""
        if self._namespaces is None:
            return
        alive = [task.id for task in tasks if task.phase is not TaskPhase.ENDED]
        try:
            uids = {task_state.read_record(self.layout.task(task)).uid for task in alive}
            await asyncio.to_thread(self._namespaces.keep, uids)
        except EngineError as error:
            log.warning("unused networks may remain: %s", error)

    def _limit_again(self, tasks: Sequence[TaskStatus]) -> None:
        """Have the driver limit the GPU memory of tasks that began without such a limit."""
        for task in tasks:
            if task.phase is TaskPhase.ENDED:
                continue
            try:
                record = task_state.read_record(self.layout.task(task.id))
            except (EngineError, OSError) as error:
                log.warning("the part of a GPU of task %s is not known: %s", task.id, error)
            else:
                self._gpu_memory.limit_group(task.id, record.gpu_parts_mib)

    def _changed(self, status: TaskStatus) -> None:
        if self._registry is None:
            return  # found while opening, which is no change
        self._streams.publish(status)
        if status.phase is TaskPhase.ENDED:
            for terminal in self._terminals.pop(status.id, []):
                hang_up = asyncio.create_task(terminal.close())
                self._hang_ups.add(hang_up)
                hang_up.add_done_callback(self._hang_ups.discard)

    async def start(self, task: TaskSpec) -> None:
        """Start once."""
        registry = await self._opened()
        if task.image:
            if self.layout.task(task.id).exists():
                raise AlreadyStarted(f"task {task.id} was started before")
            self._image_starts.begin(task)
            return
        await self._launch(registry, task)

    async def _launch(self, registry: Registry, task: TaskSpec, image: Image | None = None) -> None:
        """Start the process; tasks with a MIG instance one after the other on each device."""
        if not task.mig_slots:
            await asyncio.to_thread(self._launcher.start, task, image)
            registry.adopt(task.id)  # from here on it runs: nothing may fail any more
            return
        async with self._mig_locks.setdefault(device_of(task), asyncio.Lock()):
            held = {record.mig_instance for record in self._live_records(registry)}
            await asyncio.to_thread(self._launcher.start, task, image, held)
            registry.adopt(task.id)

    def _live_records(self, registry: Registry) -> Iterator[task_state.TaskRecord]:
        for one in registry.statuses():
            if one.phase is not TaskPhase.ENDED:
                yield task_state.read_record(self.layout.task(one.id))

    async def _start_in_image(self, task: TaskSpec, tell: Callable[[int, int], None]) -> None:
        registry = await self._opened()
        used = {record.image for record in self._live_records(registry)}
        image = await asyncio.to_thread(self._launcher.pull, task, tell, used)
        if not self._image_starts.waits(task.id):
            return  # it was ended meanwhile
        await self._launch(registry, task, image)

    def interrupt_start(self, task: TaskId) -> None:
        """Do nothing: devices of this machine are there at once."""

    async def stop(self, task: TaskId, grace_seconds: float) -> None:
        """Request the end; the supervisor enforces it, even if the engine does not run."""
        if not (math.isfinite(grace_seconds) and grace_seconds >= 0):
            raise EngineError(f"grace_seconds={grace_seconds!r}: a number from 0 is right")
        registry = await self._opened()
        if self._image_starts.waits(task) and not self.layout.task(task).exists():
            self._image_starts.end(task)
            return
        if registry[task].phase is TaskPhase.ENDED:
            return
        folder = self.layout.task(task)
        deadline = time.monotonic() + grace_seconds
        with _os_errors(f"task {task} cannot be ended"):
            with contextlib.suppress(FileNotFoundError):  # asked for the first time
                deadline = min(deadline, float((folder / "stop").read_text()))
            write_whole(folder / "stop", repr(deadline).encode())
            _wake_supervisor(folder / "control")

    async def list(self) -> Sequence[TaskStatus]:
        """List the recorded tasks."""
        found = await (await self._opened()).scan()
        known = {status.id for status in found}
        return [*found, *(one for one in self._image_starts.statuses() if one.id not in known)]

    def watch(self) -> AsyncIterator[TaskStatus]:
        """Changes from now on."""
        return self._streams.add(StatusStream(self.open))

    async def forget(self, task: TaskId) -> None:
        """Drop an ended task's record; its id cannot be reused."""
        registry = await self._opened()
        if registry[task].phase is not TaskPhase.ENDED:
            raise EngineError(f"task {task} has not ended: stop it first")
        with _os_errors(f"the record of task {task} cannot be dropped"):
            write_whole(self.layout.task(task) / FORGOTTEN, b"")
        registry.drop(task)

    async def remove_workload(self, workload_uid: str) -> None:
        """Delete logs and folders of all attempts."""
        registry = await self._opened()
        tasks = sorted(self.layout.attempts(workload_uid))
        alive = [task for task in tasks if self._alive(registry, task)]
        if alive:
            raise EngineError(f"task {alive[0]} has not ended: stop it first")
        for task in tasks:
            registry.drop(task)
        with _os_errors(f"the folders of workload {workload_uid} cannot be deleted"):
            await asyncio.to_thread(self.layout.discard, self.layout.workload(workload_uid))

    @staticmethod
    def _alive(registry: Registry, task: TaskId) -> bool:
        try:
            return registry[task].phase is not TaskPhase.ENDED
        except UnknownTask:
            return False

    async def logs(self, workload_uid: str, request: LogRequest) -> AsyncIterator[bytes]:
        """Output of one task. Raises ``UnknownTask`` at the first step."""
        registry = await self._opened()
        task = request.choose(workload_uid, self.layout.attempts(workload_uid))
        folder = self.layout.task(task) / "log"
        alive = partial(self._alive, registry, task)
        async for data in read_log(folder, request, registry.notices, alive):
            yield data

    async def exec(self, task: TaskId, command: Sequence[str]) -> ExecSession:
        """A command beside a running task, on a terminal."""
        terminal = await open_terminal(await self._beside(task), list(command))
        self._terminals.setdefault(task, []).append(terminal)
        return terminal

    async def command(self, task: TaskId, command: Sequence[str]) -> LocalPipedCommand:
        """A command beside a running task, with pipes; it ends with its connection or its task."""
        return await open_command(await self._beside(task), list(command))

    async def _beside(self, task: TaskId) -> Beside:
        registry = await self._opened()
        status = registry[task]
        started = task_state.read_started(self.layout.task(task))
        if status.phase is not TaskPhase.RUNNING or started is None:
            raise EngineError(f"task {task} is not running")
        record = task_state.read_record(self.layout.task(task))
        groups = self._limiter.find(str(task))
        return Beside(task, record, started, groups, self._launcher.syscall_filter)

    async def close(self) -> None:
        """Let go of everything; tasks go on."""
        if self._closed:
            return
        self._closed = True
        await self._image_starts.close()
        self._streams.close()
        terminals = [one for group in self._terminals.values() for one in group]
        self._terminals.clear()
        await asyncio.gather(*(terminal.close() for terminal in terminals), *self._hang_ups)
        if self._registry is not None:
            await self._tidy_networks(await self._registry.scan())
            self._registry.close()
        await asyncio.to_thread(self._launcher.close)
        if self._namespaces is not None:
            await asyncio.to_thread(self._namespaces.close)
        self._limiter.close()


@contextlib.contextmanager
def _os_errors(failure: str) -> Iterator[None]:
    """Raise an ``OSError`` as an ``EngineError`` that names the failed operation."""
    try:
        yield
    except OSError as error:
        raise EngineError(f"{failure}: {error}") from error


def _wake_supervisor(control: Path) -> None:
    """Have a supervisor read ``stop``; one that is not yet listening does when it begins."""
    try:
        descriptor = os.open(control, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return
    try:
        os.write(descriptor, b"s")
    finally:
        os.close(descriptor)
