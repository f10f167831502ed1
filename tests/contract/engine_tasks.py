"""Tasks for tests of engines, and waiting for what becomes of them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Protocol

from carrel_scheduler.engines.contract import (
    Engine,
    LogRequest,
    TaskId,
    TaskPhase,
    TaskSpec,
    TaskStatus,
)

TIMEOUT_SECONDS = 120.0
PROJECT = "engines"
"""No other test's: a namespace that tests made is not taken over by who installs Carrel."""
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


class Engines(Protocol):
    """Opens the engine under test."""

    node: str

    async def open(self) -> Engine:
        """Open the same engine again."""
        ...

    async def lose(self, task: TaskSpec) -> None:
        """End a running task as if its machine had gone down."""
        ...


def a_task(engines: Engines, script: str, *, attempt: int = 0, **fields: Any) -> TaskSpec:
    """A task that runs a bash script."""
    uid = fields.pop("uid", "w1")
    index = fields.pop("index", 0)
    defaults: dict[str, Any] = {
        "name": "train-7",
        "project": PROJECT,
        "user": "ada",
        "node": engines.node,
        "command": ("bash", "-c", script),
    }
    return TaskSpec(id=TaskId(uid, index, attempt), **{**defaults, **fields})


async def status_of(engine: Engine, task: TaskSpec) -> TaskStatus:
    """The status of a task."""
    return {status.id: status for status in await engine.list()}[task.id]


async def next_status(stream: AsyncIterator[TaskStatus], task: TaskSpec) -> TaskStatus:
    """The next change of a task."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for status in stream:
            if status.id == task.id:
                return status
    raise AssertionError("the stream of changes ended")


async def wait_for(
    engine: Engine, stream: AsyncIterator[TaskStatus], task: TaskSpec, phase: TaskPhase
) -> TaskStatus:
    """Wait for a phase; the stream must have been begun before the task could reach it."""
    status = next((one for one in await engine.list() if one.id == task.id), None)
    while status is None or status.phase is not phase:
        status = await next_status(stream, task)
    return status


async def run(engine: Engine, task: TaskSpec) -> TaskStatus:
    """Start a task and wait for its end."""
    stream = engine.watch()
    await engine.start(task)
    return await wait_for(engine, stream, task, TaskPhase.ENDED)


async def output(engine: Engine, task: TaskSpec, **options: Any) -> bytes:
    """The output of a task."""
    request = LogRequest(**options)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        pieces = [piece async for piece in engine.logs(task.id.workload_uid, request)]
    return b"".join(pieces)


async def typed(engine: Engine, task: TaskSpec, *command: str) -> str:
    """The output of a command in the sandbox of a running task."""
    session = await engine.exec(task.id, command)
    found = b""
    while piece := await session.read():
        found += piece
    await session.close()
    return found.decode()


async def wait_for_output(engine: Engine, task: TaskSpec, wanted: bytes) -> None:
    """Wait until a running task has written something."""
    found = b""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        async for piece in engine.logs(task.id.workload_uid, LogRequest(follow=True)):
            found += piece
            if wanted in found:
                return
    raise AssertionError(f"{wanted!r} is not in {found!r}")
