"""The part of the contract of ``Engine`` that people look through: logs and terminals."""

import asyncio
import re
import signal
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import pytest

from carrel_scheduler.engines.contract import (
    Engine,
    EngineError,
    TaskId,
    TaskPhase,
    TaskSpec,
    TaskStatus,
    UnknownTask,
)
from contract.engine_tasks import (
    TIMEOUT_SECONDS,
    Engines,
    a_task,
    output,
    run,
    wait_for,
    wait_for_output,
)

UNTIL_TOLD = 'until [ -e "$CARREL_CHECKPOINT_DIR/go" ]; do sleep 0.05; done'


async def tell_after(engines: Engines, engine: Engine, task: TaskSpec, wanted: bytes) -> TaskStatus:
    """Run a task that waits to be told, and tell it once what it said is in its log; its end."""
    stream = engine.watch()
    await engine.start(task)
    await wait_for_output(engine, task, wanted)
    await run(engine, a_task(engines, 'touch "$CARREL_CHECKPOINT_DIR/go"', attempt=1))
    return await wait_for(engine, stream, task, TaskPhase.ENDED)


async def read_all(session: Any) -> bytes:
    """Read the rest of a terminal session."""
    found = b""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while piece := await session.read():
            found += piece
    return found


class TerminalContract:
    """A command beside a running task."""

    async def start(self, engines: Engines, engine: Engine) -> TaskSpec:
        task = a_task(
            engines, "echo ready; sleep 600", files={"here": ""}, secret_environment={"T": "s3cret"}
        )
        await engine.start(task)
        await wait_for_output(engine, task, b"ready")
        return task

    async def test_runs_in_the_tasks_surroundings(self, engines: Engines) -> None:
        engine = await engines.open()
        task = await self.start(engines, engine)
        script = 'test -t 0 && ls here && echo "$JOB_NAME $T $(id -u)" && exit 6'
        session = await engine.exec(task.id, ("bash", "-c", script))
        said = (await read_all(session)).decode()
        assert await session.close() == 6
        who = a_task(engines, "id -u", uid="who")
        await run(engine, who)
        uid = (await output(engine, who)).decode().strip()
        assert said == f"here\r\ntrain-7 s3cret {uid}\r\n"

    async def test_types_resizes_and_shows_the_jobs_name_in_the_prompt(
        self, engines: Engines
    ) -> None:
        engine = await engines.open()
        task = await self.start(engines, engine)
        session = await engine.exec(task.id, ("bash",))
        await session.resize(33, 111)
        # On a cluster what is typed may overtake the size.
        sized = b"until stty size | grep -qx '33 1*'; do sleep 0.1; done; stty size; exit 9\n"
        await session.write(sized)
        said = (await read_all(session)).decode()
        assert "train-7-0-0" in said
        assert "33 111" in said
        assert await session.close() == 9

    async def test_closing_hangs_up(self, engines: Engines) -> None:
        engine = await engines.open()
        task = await self.start(engines, engine)
        session = await engine.exec(task.id, ("sleep", "600"))
        assert await session.close() == 128 + 1
        assert await session.read() == b""

    async def test_closing_hangs_up_also_where_the_service_does_not_listen(
        self, engines: Engines
    ) -> None:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
        try:
            engine = await engines.open()
            task = await self.start(engines, engine)
            session = await engine.exec(task.id, ("sleep", "600"))
            assert await session.close() == 128 + 1
        finally:
            signal.signal(signal.SIGHUP, before)

    async def test_ends_with_its_task(self, engines: Engines) -> None:
        engine = await engines.open()
        task = await self.start(engines, engine)
        session = await engine.exec(task.id, ("bash", "-c", "echo up; sleep 600"))
        said = b""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while said != b"up\r\n":  # a terminal passes on what there is
                piece = await session.read()
                assert piece, said
                said += piece
        await engine.stop(task.id, 5.0)
        await read_all(session)
        assert await session.close() >= 128

    async def test_needs_a_running_task(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(engines, "true")
        await run(engine, task)
        with pytest.raises(EngineError):
            await engine.exec(task.id, ("true",))
        with pytest.raises(UnknownTask):
            await engine.exec(TaskId("w9", 0, 0), ("true",))


class LogContract:
    """Output byte for byte, from where and in the form that was asked for."""

    async def test_is_byte_exact_and_has_both_streams(self, engines: Engines) -> None:
        engine = await engines.open()
        # The streams have an order only as far as time gives them one.
        script = rf"printf 'a\rb\0\xff\n'; {UNTIL_TOLD}; printf 'no newline' >&2"
        task = a_task(engines, script)
        await tell_after(engines, engine, task, b"\xff\n")
        assert await output(engine, task, attempt=0) == b"a\rb\0\xff\nno newline"

    async def test_tail(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(engines, "seq 0 9")
        await run(engine, task)
        for lines in (2, 0, 1, 99):
            wanted = b"".join(b"%d\n" % n for n in range(10)[max(0, 10 - lines) :])
            assert await output(engine, task, tail_lines=lines) == wanted

    async def test_since_and_timestamps(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(engines, f"echo early; echo both; {UNTIL_TOLD}; echo late")
        status = await tell_after(engines, engine, task, b"both\n")
        first = {"attempt": 0}
        assert await output(engine, task, since=status.ended_at + 5, **first) == b""
        assert await output(engine, task, since=0.0, **first) == b"early\nboth\nlate\n"
        stamped = (await output(engine, task, timestamps=True, **first)).decode().splitlines()
        assert [line.split(" ", 1)[1] for line in stamped] == ["early", "both", "late"]
        pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
        assert all(re.fullmatch(pattern, line.split(" ")[0]) for line in stamped)
        stamps = [line.split(" ")[0] for line in stamped]
        assert stamps == sorted(stamps)
        both, late = (datetime.fromisoformat(stamp).timestamp() for stamp in stamps[1:])
        assert await output(engine, task, since=(both + late) / 2, **first) == b"late\n"

    async def test_follow_shows_growth_and_ends_with_the_task(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(engines, "for i in 1 2 3; do echo $i; sleep 0.2; done")
        await engine.start(task)
        assert await output(engine, task, follow=True) == b"1\n2\n3\n"

    async def test_the_latest_attempt_unless_another_is_named(self, engines: Engines) -> None:
        engine = await engines.open()
        tasks: Sequence[TaskSpec] = [
            a_task(engines, f"echo {number}", attempt=number) for number in (2, 10)
        ]
        for task in tasks:
            await run(engine, task)
        assert await output(engine, tasks[0]) == b"10\n"
        assert await output(engine, tasks[0], attempt=2) == b"2\n"
        with pytest.raises(UnknownTask):
            await output(engine, tasks[0], attempt=3)
        with pytest.raises(UnknownTask):
            await output(engine, a_task(engines, "", uid="nobody"))
