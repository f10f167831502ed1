"""The contract of ``Engine``; inherit ``EngineContract`` and give it the fixture ``engines``.

``engines`` opens the same engine again and again (``await engines.open()``), also while an earlier
opening still lives, and at the end closes all and removes whatever the tests left;
``await engines.lose(task)`` does to a task what befalls those of a machine that goes down.
Tasks are run by ``bash``, as user ``ada``.
"""

import asyncio
import re
import time
from typing import Any

import pytest

from carrel_scheduler.engines.contract import (
    AlreadyStarted,
    EngineError,
    LogRequest,
    TaskId,
    TaskPhase,
    UnknownTask,
)
from contract.engine_contract_views import LogContract, TerminalContract
from contract.engine_tasks import (
    STUBBORN,
    TIMEOUT_SECONDS,
    Engines,
    a_task,
    output,
    run,
    status_of,
    wait_for,
    wait_for_output,
)


class LifeContract:
    """Start once, run, end, stop."""

    async def test_goes_from_starting_to_running_to_ended(self, engines: Engines) -> None:
        engine = await engines.open()
        stream, before = engine.watch(), time.time()
        # Until it is told: nobody may miss that it runs.
        script = "trap 'exit 7' TERM; echo ready; while :; do sleep 0.05; done"
        task = a_task(engines, script, devices=(1, 3))
        await engine.start(task)
        running = await wait_for(engine, stream, task, TaskPhase.RUNNING)
        await wait_for_output(engine, task, b"ready")
        await engine.stop(task.id, TIMEOUT_SECONDS)
        ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
        assert running.devices == ended.devices == (1, 3)
        assert (running.node, running.ended_at) == (engines.node, 0.0)
        # Some engines know times to the second only.
        assert int(before) <= running.started_at <= ended.ended_at <= time.time() + 1
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

    async def test_the_end_of_the_output_of_what_failed_is_told(self, engines: Engines) -> None:
        engine = await engines.open()
        script = "(seq 5000; echo 'no such key: 7') >&2; exit 3"
        ended = await run(engine, a_task(engines, script))
        # Of one stream: a cluster does not keep the order between two.
        assert ended.last_output.endswith("4999\n5000\nno such key: 7\n"), ended.last_output
        assert (ended.exit_code, ended.message) == (3, "")
        assert len(ended.last_output) <= 2048
        assert (await run(engine, a_task(engines, "echo fine", attempt=1))).last_output == ""

    async def test_a_command_that_is_not_there_ends_with_its_name(self, engines: Engines) -> None:
        engine = await engines.open()
        ended = await run(engine, a_task(engines, "", command=("no-such-program",)))
        assert ended.exit_code == 127
        assert "no-such-program" in ended.message

    async def test_what_cannot_run_is_refused_and_leaves_nothing(self, engines: Engines) -> None:
        engine = await engines.open()
        refused: list[tuple[dict[str, Any], str]] = [
            ({"node": "elsewhere"}, "elsewhere"),
            ({"command": ()}, "command"),
            ({"files": {"../x": ""}}, "../x"),
            ({"files": {"/etc/x": ""}}, "/etc/x"),
            ({"environment": {"A=B": "c"}}, "A=B"),
            ({"volumes": (("/no/such/folder", "data"),)}, "/no/such/folder"),
            ({"user": "../x"}, "../x"),
        ]
        for fields, named in refused:
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
        said = b""
        async with asyncio.timeout(TIMEOUT_SECONDS):
            # Followed from before the stop: a node may drop the log of what was stopped.
            async for piece in engine.logs(task.id.workload_uid, LogRequest(follow=True)):
                asks = b"ready" not in said
                said += piece
                if asks and b"ready" in said:
                    await engine.stop(task.id, TIMEOUT_SECONDS)
        ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
        assert ended.exit_code == 3
        assert said.startswith(b"ready\n")
        assert b"saved\n" in said  # what bash says of its ``sleep`` may come before or after

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
        ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
        assert time.monotonic() - asked >= 0.7
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

    async def test_a_task_whose_node_is_gone_is_lost_and_told_so(self, engines: Engines) -> None:
        engine = await engines.open()
        task = a_task(engines, STUBBORN)
        stream = engine.watch()
        await engine.start(task)
        await wait_for_output(engine, task, b"ready")
        await engines.lose(task)
        ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
        assert ended.lost
        assert ended.exit_code is None
        assert ended.message
        assert await status_of(engine, task) == ended
        await engine.forget(task.id)
        assert await engine.list() == []


class SurroundingsContract:
    """The surroundings of a task: its files, its leftovers, and access to it."""

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


class EngineContract(
    LifeContract, AdoptionContract, SurroundingsContract, TerminalContract, LogContract
):
    """The whole contract of ``Engine``."""
