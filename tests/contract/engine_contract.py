"""The contract of ``Engine``; inherit ``EngineContract`` and give it the fixture ``engines``.

``engines`` opens the same engine again and again (``await engines.open()``), also while an earlier
opening still lives, and at the end closes all and removes whatever the tests left. Tasks are run
by ``bash``, as user ``ada``.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Protocol

import pytest

from carrel_scheduler.engines.contract import (
    AlreadyStarted,
    Engine,
    EngineError,
    TaskId,
    TaskPhase,
    TaskSpec,
    TaskStatus,
    UnknownTask,
)

PATIENCE = 30.0
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


class Engines(Protocol):
    """Opens the engine under test."""

    node: str

    async def open(self) -> Engine:
        """Another opening of the same engine."""
        ...


def a_task(engines: Engines, script: str, *, attempt: int = 0, **fields: Any) -> TaskSpec:
    """A task that runs a bash script."""
    uid = fields.pop("uid", "w1")
    index = fields.pop("index", 0)
    defaults: dict[str, Any] = {
        "name": "train-7",
        "project": "vision",
        "user": "ada",
        "node": engines.node,
        "command": ("bash", "-c", script),
    }
    return TaskSpec(id=TaskId(uid, index, attempt), **{**defaults, **fields})


async def status_of(engine: Engine, task: TaskSpec) -> TaskStatus:
    """What the engine says of a task."""
    return {status.id: status for status in await engine.list()}[task.id]


async def next_status(stream: AsyncIterator[TaskStatus], task: TaskSpec) -> TaskStatus:
    """The next change of a task."""
    async with asyncio.timeout(PATIENCE):
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
    """What a task wrote."""
    async with asyncio.timeout(PATIENCE):
        pieces = [piece async for piece in engine.logs(task.id.workload_uid, **options)]
    return b"".join(pieces)


async def wait_for_output(engine: Engine, task: TaskSpec, wanted: bytes) -> None:
    """Wait until a running task has written something."""
    found = b""
    async with asyncio.timeout(PATIENCE):
        async for piece in engine.logs(task.id.workload_uid, follow=True):
            found += piece
            if wanted in found:
                return
    raise AssertionError(f"{wanted!r} is not in {found!r}")


class LifeContract:
    """Start once, run, end, stop."""

    async def test_goes_from_starting_to_running_to_ended(self, engines: Engines) -> None:
        engine = await engines.open()
        stream, before = engine.watch(), time.time()
        task = a_task(engines, "sleep 0.3; exit 7", devices=(1, 3))
        await engine.start(task)
        running = await wait_for(engine, stream, task, TaskPhase.RUNNING)
        ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
        assert running.devices == ended.devices == (1, 3)
        assert (running.node, running.ended_at) == (engines.node, 0.0)
        assert before <= running.started_at <= ended.ended_at <= time.time() + 1
        assert (ended.exit_code, ended.signal, ended.lost) == (7, 0, False)
        assert ended.started_at == running.started_at
        assert await status_of(engine, task) == ended

    async def test_success_is_exit_code_0(self, engines: Engines) -> None:
        engine = await engines.open()
        ended = await run(engine, a_task(engines, "true"))
        assert (ended.exit_code, ended.signal, ended.message) == (0, 0, "")

    async def test_a_task_id_starts_once_and_never_again(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(engines, 'echo run >> "$CARREL_CHECKPOINT_DIR/runs"')
        await run(engine, task)
        with pytest.raises(AlreadyStarted):
            await engine.start(task)
        with pytest.raises(AlreadyStarted):
            await (await engines.open()).start(task)
        await engine.forget(task.id)
        with pytest.raises(AlreadyStarted):
            await engine.start(task)
        look = a_task(engines, 'cat "$CARREL_CHECKPOINT_DIR/runs"', attempt=1)
        await run(engine, look)
        assert await output(engine, look) == b"run\n"

    async def test_of_many_starts_at_once_one_wins(self, engines: Engines) -> None:
        one, other = await engines.open(), await engines.open()
        task = a_task(engines, "echo once")
        stream = one.watch()
        tries = [engine.start(task) for engine in (one, other) * 4]
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        refused = [outcome for outcome in outcomes if outcome is not None]
        assert [type(outcome) for outcome in refused] == [AlreadyStarted] * 7
        await wait_for(one, stream, task, TaskPhase.ENDED)
        assert await output(one, task) == b"once\n"

    async def test_death_by_a_signal_is_told(self, engines: Engines) -> None:
        engine = await engines.open()
        ended = await run(engine, a_task(engines, "kill -SEGV $$"))
        assert (ended.exit_code, ended.signal, ended.lost) == (None, 11, False)

    async def test_a_command_that_is_not_there_ends_with_its_name(self, engines: Engines) -> None:
        engine = await engines.open()
        ended = await run(engine, a_task(engines, "", command=("no-such-program",)))
        assert ended.exit_code == 127
        assert "no-such-program" in ended.message

    @pytest.mark.parametrize(
        ("fields", "named"),
        [
            ({"node": "elsewhere"}, "elsewhere"),
            ({"command": ()}, "command"),
            ({"files": {"../x": ""}}, "../x"),
            ({"files": {"/etc/x": ""}}, "/etc/x"),
            ({"environment": {"A=B": "c"}}, "A=B"),
            ({"volumes": (("/no/such/folder", "data"),)}, "/no/such/folder"),
            ({"user": "../x"}, "../x"),
        ],
    )
    async def test_what_cannot_run_is_refused_and_leaves_nothing(
        self, engines: Engines, fields: dict[str, Any], named: str
    ) -> None:
        engine = await engines.open()
        with pytest.raises(EngineError, match=re.escape(named)):
            await engine.start(a_task(engines, "true", **fields))
        assert await engine.list() == []
        assert (await run(engine, a_task(engines, "true"))).exit_code == 0

    async def test_stop_asks_first(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(
            engines, "trap 'echo saved; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
        )
        stream = engine.watch()
        await engine.start(task)
        await wait_for_output(engine, task, b"ready")
        await engine.stop(task.id, PATIENCE)
        ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
        assert ended.exit_code == 3
        assert b"ready\n" in await output(engine, task)
        assert (await output(engine, task)).endswith(b"saved\n")

    async def test_stop_kills_what_does_not_listen_after_the_grace_period(
        self, engines: Engines
    ) -> None:
        engine = await engines.open()
        task = a_task(engines, f'bash -c "{STUBBORN}" & {STUBBORN}')
        stream = engine.watch()
        await engine.start(task)
        await wait_for_output(engine, task, b"ready\nready")
        asked = time.monotonic()
        await engine.stop(task.id, 0.8)
        assert time.monotonic() - asked < 0.5
        ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
        assert 0.7 <= time.monotonic() - asked < PATIENCE
        assert (ended.exit_code, ended.signal) == (None, 9)

    async def test_a_shorter_grace_shortens_and_a_longer_one_does_not_lengthen(
        self, engines: Engines
    ) -> None:
        engine = await engines.open()
        task = a_task(engines, STUBBORN)
        stream = engine.watch()
        await engine.start(task)
        await wait_for_output(engine, task, b"ready")
        for grace in (600.0, 0.3, 600.0):
            await engine.stop(task.id, grace)
        assert (await wait_for(engine, stream, task, TaskPhase.ENDED)).signal == 9

    async def test_stopping_an_ended_task_is_no_error_an_unknown_one_is(
        self, engines: Engines
    ) -> None:
        engine = await engines.open()
        task = a_task(engines, "true")
        ended = await run(engine, task)
        await engine.stop(task.id, 1.0)
        assert await status_of(engine, task) == ended
        with pytest.raises(UnknownTask):
            await engine.stop(TaskId("nobody", 0, 0), 1.0)

    async def test_a_stop_right_after_the_start_stops(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(engines, "sleep 600")
        stream = engine.watch()
        await engine.start(task)
        await engine.stop(task.id, 5.0)
        ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
        assert (ended.exit_code, ended.signal) == (None, 15)


class AdoptionContract:
    """The next opening finds what the one before left."""

    async def test_a_running_task_goes_on_and_is_found_again(self, engines: Engines) -> None:
        first = await engines.open()
        task = a_task(engines, "echo ready; read line < pipe; exit 5", files={"pipe": ""})
        task = a_task(
            engines,
            'echo ready; until [ -e "$CARREL_CHECKPOINT_DIR/go" ]; do sleep 0.05; done; exit 5',
        )
        stream = first.watch()
        await first.start(task)
        running = await wait_for(first, stream, task, TaskPhase.RUNNING)
        await first.close()

        second = await engines.open()
        changes = second.watch()
        assert await status_of(second, task) == running
        await wait_for_output(second, task, b"ready")
        await run(second, a_task(engines, 'touch "$CARREL_CHECKPOINT_DIR/go"', attempt=1))
        ended = await wait_for(second, changes, task, TaskPhase.ENDED)
        assert (ended.exit_code, ended.started_at) == (5, running.started_at)

    async def test_an_end_that_nobody_watched_is_known(self, engines: Engines) -> None:
        first = await engines.open()
        task, quick = a_task(engines, "exit 4"), a_task(engines, "true", uid="w2")
        await first.start(task)
        await first.close()
        second = await engines.open()
        changes = second.watch()
        await second.start(quick)
        ended = await wait_for(second, changes, task, TaskPhase.ENDED)
        assert ended.exit_code == 4

    async def test_a_stop_goes_on_after_the_one_who_asked_is_gone(self, engines: Engines) -> None:
        first = await engines.open()
        task = a_task(engines, STUBBORN)
        await first.start(task)
        await wait_for_output(first, task, b"ready")
        await first.stop(task.id, 0.5)
        await first.close()
        second = await engines.open()
        changes = second.watch()
        assert (await wait_for(second, changes, task, TaskPhase.ENDED)).signal == 9


class SurroundingsContract:
    """What a task finds, what it leaves, and who may look in."""

    async def test_files_environment_and_devices(self, engines: Engines) -> None:
        engine = await engines.open()
        script = (
            'cat conf/a.txt; echo "$CARREL_DEVICES|$CUDA_VISIBLE_DEVICES|$JOB_NAME|$JOB_UUID"'
            '"|$POD_INDEX|$CARREL_NODE|$COLOR|$TOKEN"'
        )
        task = a_task(
            engines,
            script,
            index=2,
            devices=(0, 2),
            device_uuids=("GPU-a", "GPU-c"),
            files={"conf/a.txt": "grüße\n"},
            environment={"COLOR": "red", "TOKEN": "no"},
            secret_environment={"TOKEN": "s3cret"},
        )
        assert (await run(engine, task)).exit_code == 0
        lines = (await output(engine, task, index=2)).decode().splitlines()
        assert lines == ["grüße", f"0,2|GPU-a,GPU-c|train-7|w1|2|{engines.node}|red|s3cret"]

    async def test_a_task_without_devices_sees_none(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(engines, 'echo "[${CUDA_VISIBLE_DEVICES-unset}]$NVIDIA_VISIBLE_DEVICES"')
        await run(engine, task)
        assert await output(engine, task) == b"[]void\n"

    async def test_checkpoints_outlive_attempts_and_removal(self, engines: Engines) -> None:
        engine = await engines.open()
        await run(engine, a_task(engines, 'echo 12 > "$CARREL_CHECKPOINT_DIR/step"'))
        await engine.remove_workload("w1")
        again = a_task(engines, 'cat "$CARREL_CHECKPOINT_DIR/step"', attempt=1)
        await run(engine, again)
        assert await output(engine, again) == b"12\n"

    async def test_forget_drops_the_record_and_keeps_the_log(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(engines, "echo kept")
        await run(engine, task)
        await engine.forget(task.id)
        assert await engine.list() == []
        assert await (await engines.open()).list() == []
        assert await output(engine, task) == b"kept\n"
        await engine.remove_workload("w1")
        with pytest.raises(UnknownTask):
            await output(engine, task)

    async def test_what_runs_is_neither_forgotten_nor_removed(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(engines, "sleep 600")
        await engine.start(task)
        with pytest.raises(EngineError):
            await engine.forget(task.id)
        with pytest.raises(EngineError):
            await engine.remove_workload("w1")
        with pytest.raises(UnknownTask):
            await engine.forget(TaskId("w9", 0, 0))


async def read_all(session: Any) -> bytes:
    """Everything a terminal session still says."""
    found = b""
    async with asyncio.timeout(PATIENCE):
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
        await session.write(b"stty size; exit 9\n")
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

    async def test_ends_with_its_task(self, engines: Engines) -> None:
        engine = await engines.open()
        task = await self.start(engines, engine)
        session = await engine.exec(task.id, ("bash", "-c", "echo up; sleep 600"))
        assert await session.read() == b"up\r\n"
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
        task = a_task(engines, r"printf 'a\r\n\0\xff\n'; printf 'no newline' >&2")
        await run(engine, task)
        assert await output(engine, task) == b"a\r\n\0\xff\nno newline"

    @pytest.mark.parametrize(
        ("lines", "wanted"),
        [(2, b"8\n9\n"), (0, b""), (1, b"9\n"), (99, b"".join(b"%d\n" % n for n in range(10)))],
    )
    async def test_tail(self, engines: Engines, lines: int, wanted: bytes) -> None:
        engine = await engines.open()
        task = a_task(engines, "seq 0 9")
        await run(engine, task)
        assert await output(engine, task, tail_lines=lines) == wanted

    async def test_since_and_timestamps(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(engines, "echo early; echo both; sleep 0.6; echo late")
        status = await run(engine, task)
        middle = status.ended_at - 0.3
        assert await output(engine, task, since=middle) == b"late\n"
        assert await output(engine, task, since=status.ended_at + 5) == b""
        assert await output(engine, task, since=0.0) == b"early\nboth\nlate\n"
        stamped = (await output(engine, task, timestamps=True)).decode().splitlines()
        assert [line.split(" ", 1)[1] for line in stamped] == ["early", "both", "late"]
        pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
        assert all(re.fullmatch(pattern, line.split(" ")[0]) for line in stamped)
        stamps = [line.split(" ")[0] for line in stamped]
        assert stamps == sorted(stamps)

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


class EngineContract(
    LifeContract, AdoptionContract, SurroundingsContract, TerminalContract, LogContract
):
    """All of it."""
