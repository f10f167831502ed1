"""A machine that runs out of something: tasks that run are known to run, and their end is seen."""

import asyncio
import ctypes
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inotify_simple
import pytest

from carrel_scheduler.engines.contract import EngineError, TaskPhase, TaskStatus
from carrel_scheduler.engines.local import registry, task_state
from contract.engine.local_engines import LocalEngines, marked, supervisors
from contract.engine_tasks import (
    TIMEOUT_SECONDS,
    a_task,
    next_status,
    output,
    run,
    status_of,
    wait_for,
    wait_for_output,
)


class ShortOf:
    """The C library, of which one function fails while there is not enough for it."""

    def __init__(self, name: str, code: int) -> None:
        self.real = ctypes.CDLL(None, use_errno=True)
        self.name, self.code = name, code
        self.enough = False

    def __getattr__(self, name: str) -> Any:
        if name != self.name or self.enough:
            return getattr(self.real, name)

        def refuse(*_arguments: Any) -> int:
            ctypes.set_errno(self.code)
            return -1

        return refuse


SHORT = [
    ("inotify_add_watch", errno.ENOSPC, "max_user_watches"),
    ("inotify_init1", errno.EMFILE, "max_user_instances"),
]


@pytest.mark.parametrize(("name", "code", "hint"), SHORT)
async def test_without_watches_tasks_start_and_their_end_is_noticed(
    engines: LocalEngines,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    code: int,
    hint: str,
) -> None:
    libc = ShortOf(name, code)
    monkeypatch.setattr(inotify_simple, "_libc", libc)
    engine = await engines.open()
    stream = engine.watch()
    task = a_task(engines, "echo one; until [ -e go ]; do sleep 0.05; done; echo two")
    await engine.start(task)
    await wait_for(engine, stream, task, TaskPhase.RUNNING)
    assert hint in engine.trouble
    assert [record.levelname for record in caplog.records if hint in record.message] == ["WARNING"]
    following = asyncio.ensure_future(output(engine, task, follow=True))
    await wait_for_output(engine, task, b"one")
    (engines.folder() / "work" / "go").touch()
    assert (await wait_for(engine, stream, task, TaskPhase.ENDED)).exit_code == 0
    assert await following == b"one\ntwo\n"
    libc.enough = True
    await engine.start(a_task(engines, "sleep 600", attempt=1))
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while engine.trouble:  # noqa: ASYNC110 - the kernel sets no event of ours
            await asyncio.sleep(0.02)


async def test_a_killed_supervisor_is_noticed_without_watches(
    engines: LocalEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inotify_simple, "_libc", ShortOf("inotify_add_watch", errno.ENOSPC))
    engine = await engines.open()
    stream, task = engine.watch(), a_task(engines, "echo ready; sleep 600")
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    (supervisor,) = supervisors(engines.root)
    os.kill(supervisor, signal.SIGKILL)
    assert (await wait_for(engine, stream, task, TaskPhase.ENDED)).lost
    assert marked(engines.folder()) == []


async def test_a_task_that_cannot_be_looked_at_is_neither_refused_nor_unknown(
    engines: LocalEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is told that a start failed, or that a task is unknown, gives its GPUs to others."""
    engine = await engines.open()
    await engine.open()
    stream, task = engine.watch(), a_task(engines, "sleep 600")
    with monkeypatch.context() as patched:
        patched.setattr(task_state.Lock, "held", staticmethod(failing(errno.EMFILE)))
        await engine.start(task)
        for asking in (engine.list(), engine.stop(task.id, 0.0), engine.remove_workload("w1")):
            with pytest.raises(EngineError, match="Too many open files"):
                await asking
    assert (await next_status(stream, task)).phase is not TaskPhase.ENDED
    await engine.stop(task.id, 0.0)


def failing(code: int) -> Callable[..., Any]:
    def fail(*_arguments: Any, **_named: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return fail


async def test_an_end_that_cannot_be_written_down_is_shown_and_written_later(
    engines: LocalEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "RETRY_SECONDS", 0.05)
    engine = await engines.open()
    stream, task = engine.watch(), a_task(engines, "echo ready; sleep 600", devices=(2,))
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")

    async def until(met: Callable[[TaskStatus], bool]) -> TaskStatus:
        while not met(status := await next_status(stream, task)):
            pass
        return status

    with monkeypatch.context() as patched:
        patched.setattr(task_state, "write_whole", failing(errno.ENOSPC))
        (supervisor,) = supervisors(engines.root)
        os.kill(supervisor, signal.SIGKILL)
        held = await until(lambda status: "No space left" in status.message)
        assert (held.phase, held.devices) == (TaskPhase.RUNNING, (2,))
        assert marked(engines.folder()) == []
    assert (await until(lambda status: status.phase is TaskPhase.ENDED)).lost


async def test_a_scheduler_that_starts_meanwhile_hears_of_the_task(
    engines: LocalEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "RETRY_SECONDS", 0.05)
    first = await engines.open()
    task = a_task(engines, "echo ready; sleep 600", devices=(2,))
    await first.start(task)
    await wait_for_output(first, task, b"ready")
    await first.close()
    (supervisor,) = supervisors(engines.root)
    os.kill(supervisor, signal.SIGKILL)
    await engines.no_supervisors()
    with monkeypatch.context() as patched:
        patched.setattr(task_state, "write_whole", failing(errno.ENOSPC))
        engine = await engines.open()
        status = await status_of(engine, task)
        assert (status.phase, status.devices) == (TaskPhase.RUNNING, (2,))
        stream = engine.watch()
    assert (await wait_for(engine, stream, task, TaskPhase.ENDED)).lost


@pytest.mark.parametrize("name", ["task.json", "pid.json"])
@pytest.mark.parametrize("content", [b"", b"{", b"[1]"])
async def test_damaged_records_of_a_running_task_keep_nobody_from_going_on(
    engines: LocalEngines, name: str, content: bytes
) -> None:
    """A machine that goes down may leave files empty that were not yet on the disk."""
    first = await engines.open()
    task = a_task(engines, "echo ready; sleep 600")
    await first.start(task)
    await wait_for_output(first, task, b"ready")
    await first.close()
    (engines.folder() / name).write_bytes(content)
    engine = await engines.open()
    assert (await status_of(engine, task)).phase is not TaskPhase.ENDED
    stream = engine.watch()
    await engine.stop(task.id, 0.0)
    await wait_for(engine, stream, task, TaskPhase.ENDED)


async def test_a_damaged_end_is_a_lost_task(engines: LocalEngines) -> None:
    first = await engines.open()
    task = a_task(engines, "true")
    await run(first, task)
    await first.close()
    await engines.no_supervisors()
    (engines.folder() / "exit.json").write_bytes(b"")
    status = await status_of(await engines.open(), task)
    assert (status.phase, status.lost) == (TaskPhase.ENDED, True)


async def test_what_is_no_record_is_left_alone(engines: LocalEngines) -> None:
    await (await engines.open()).open()
    tasks: Path = engines.root / "tasks"
    (tasks / "lost+found").mkdir()
    (tasks / "stray").touch()
    (tasks / "w1").mkdir()
    (tasks / "w1" / "0-x").mkdir()
    assert await (await engines.open()).list() == []


async def test_an_engine_that_could_not_open_leaves_nothing_open(
    engines: LocalEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run(await engines.open(), a_task(engines, "true"))
    engine = await engines.open()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(task_state.Lock, "held", staticmethod(failing(errno.EMFILE)))
        for _ in range(3):
            with pytest.raises(EngineError):
                await engine.list()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert len(await engine.list()) == 1
