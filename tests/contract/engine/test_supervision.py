"""Supervisors: what they see to, and what is told of a task whose supervisor was killed."""

import asyncio
import json
import os
import signal
import stat
from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import TaskPhase
from carrel_scheduler.engines.local.shim import process_tree
from contract.engine.local_engines import LocalEngines, marked, supervisors, until
from contract.engine_tasks import (
    STUBBORN,
    a_task,
    next_status,
    output,
    run,
    status_of,
    wait_for,
    wait_for_output,
)

# A grandchild with a session of its own, and one whose parent is gone.
FAMILY = "setsid sleep 600 & (setsid sleep 600 &) ; sleep 600 & echo ready; sleep 600"


async def test_a_supervisor_is_nobodys_child_and_leads_no_terminal(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "echo ready; sleep 600")
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    (pid,) = supervisors(engines.root)
    parent, group, session = (int(field) for field in process_tree.stat_fields(pid)[1:4])
    assert parent != os.getpid()
    assert os.getsid(0) != session
    assert os.getpgid(0) != group


async def test_a_killed_supervisor_is_noticed_and_nothing_of_its_task_lives_on(
    engines: LocalEngines,
) -> None:
    engine = await engines.open()
    task = a_task(engines, FAMILY)
    stream = engine.watch()
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    running = await wait_for(engine, stream, task, TaskPhase.RUNNING)
    (supervisor,) = supervisors(engines.root)

    async def all_there() -> bool:
        return len(marked(engines.folder())) == 4  # who is just becoming another program is not

    await until(all_there)
    os.kill(supervisor, signal.SIGKILL)
    lost = await next_status(stream, task)
    while lost.phase is not TaskPhase.ENDED:
        lost = await next_status(stream, task)
    assert (lost.lost, lost.exit_code, lost.signal) == (True, None, 0)
    assert "supervisor" in lost.message
    assert lost.pid == running.pid
    assert marked(engines.folder()) == []
    assert await status_of(await engines.open(), task) == lost


async def test_a_supervisor_killed_while_nobody_looks_is_found_out_later(
    engines: LocalEngines,
) -> None:
    first = await engines.open()
    task = a_task(engines, FAMILY)
    await first.start(task)
    await wait_for_output(first, task, b"ready")
    await first.close()
    (supervisor,) = supervisors(engines.root)
    os.kill(supervisor, signal.SIGKILL)

    await engines.no_supervisors()
    status = await status_of(await engines.open(), task)
    assert (status.phase, status.lost) == (TaskPhase.ENDED, True)
    assert marked(engines.folder()) == []


async def test_a_task_that_was_claimed_but_never_started_is_lost(engines: LocalEngines) -> None:
    """What a scheduler leaves that dies between the claim and the supervisor."""
    first = await engines.open()
    await run(first, a_task(engines, "true"))
    await first.close()
    await engines.no_supervisors()
    for name in ("pid.json", "exit.json"):
        (engines.folder() / name).unlink()
    status = await status_of(await engines.open(), a_task(engines, ""))
    assert (status.phase, status.lost, status.pid) == (TaskPhase.ENDED, True, 0)
    assert status.loss == ""
    assert "never ran" in status.message


async def test_a_record_of_an_earlier_start_of_the_machine_is_lost_and_kills_nobody(
    engines: LocalEngines,
) -> None:
    first = await engines.open()
    await run(first, a_task(engines, "true"))
    await first.close()
    await engines.no_supervisors()
    bystander = await asyncio.create_subprocess_exec("sleep", "600")
    (engines.folder() / "exit.json").unlink()
    record = json.loads((engines.folder() / "pid.json").read_text())
    record |= {"pid": bystander.pid, "start_time": process_tree.start_time(bystander.pid)}
    record |= {"boot_id": "another"}
    (engines.folder() / "pid.json").write_text(json.dumps(record))
    try:
        status = await status_of(await engines.open(), a_task(engines, ""))
        assert (status.lost, status.loss) == (True, "node")
        assert status.message == "its machine was restarted"
        assert bystander.returncode is None
    finally:
        bystander.kill()
        await bystander.wait()


async def test_what_a_task_leaves_behind_ends_with_it(engines: LocalEngines) -> None:
    engine = await engines.open()
    orphan = "(setsid bash -c \"trap '' TERM HUP; sleep 600\" &)"
    script = f"{orphan}; {orphan}; {orphan}; sleep 0.2"
    assert (await run(engine, a_task(engines, script))).exit_code == 0
    assert marked(engines.folder()) == []


async def test_stop_reaches_children_in_groups_and_sessions_of_their_own(
    engines: LocalEngines,
) -> None:
    engine = await engines.open()
    child = "trap 'echo saved; exit' TERM; echo ready; while :; do sleep 0.05; done"
    task = a_task(engines, f'setsid bash -c "{child}" & wait')
    stream = engine.watch()
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    await engine.stop(task.id, 20.0)
    await wait_for(engine, stream, task, TaskPhase.ENDED)
    assert b"saved" in await output(engine, task)
    assert marked(engines.folder()) == []


async def test_a_child_may_use_the_grace_period_that_its_shell_did_not_wait_for(
    engines: LocalEngines,
) -> None:
    """A shell dies of SIGTERM at once; what it runs must still get to save its work."""
    engine = await engines.open()
    child = "trap 'sleep 0.4; echo saved; exit' TERM; echo ready; while :; do sleep 0.05; done"
    task = a_task(engines, f'bash -c "{child}"; echo after')
    stream = engine.watch()
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    await engine.stop(task.id, 20.0)
    ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
    assert ended.signal == 15
    assert b"saved" in await output(engine, task)


async def test_a_stopped_process_is_woken_to_hear_that_it_shall_end(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "echo ready; kill -STOP $$; echo never")
    stream = engine.watch()
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    await engine.stop(task.id, 20.0)
    assert (await wait_for(engine, stream, task, TaskPhase.ENDED)).signal == 15


async def test_the_supervisor_outlives_signals_meant_for_others(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "echo ready; until [ -e go ]; do sleep 0.05; done; exit 3")
    stream = engine.watch()
    await engine.start(task)
    await wait_for_output(engine, task, b"ready")
    (supervisor,) = supervisors(engines.root)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        os.kill(supervisor, number)
    (engines.folder() / "work" / "go").touch()
    assert (await wait_for(engine, stream, task, TaskPhase.ENDED)).exit_code == 3


async def test_a_task_has_the_usual_signal_handling(engines: LocalEngines) -> None:
    """A Python parent ignores SIGPIPE; were that passed on, ``yes | head`` would never end."""
    engine = await engines.open()
    task = a_task(engines, "grep -E '^Sig(Blk|Ign)' /proc/self/status")
    await run(engine, task)
    lines = (await output(engine, task)).decode().split()
    # Signals 32 and 33 belong to the C library; a program cannot change how it inherits them.
    own = ~(0b11 << 31)
    assert [int(mask, 16) & own for mask in lines[1::2]] == [0, 0]


async def test_no_descriptor_leaks_into_a_task(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "ls /proc/self/fd")
    await run(engine, task)
    assert (await output(engine, task)).split() == [b"0", b"1", b"2", b"3"]


async def test_secrets_touch_no_file(engines: LocalEngines) -> None:
    engine = await engines.open()
    task = a_task(engines, "sleep 600", secret_environment={"TOKEN": "s3cr3t-word"})
    stream = engine.watch()
    await engine.start(task)
    await wait_for(engine, stream, task, TaskPhase.RUNNING)
    assert secrets_on_disk(engines.root) == []
    await engine.stop(task.id, 0.0)
    await wait_for(engine, stream, task, TaskPhase.ENDED)
    assert secrets_on_disk(engines.root) == []


def secrets_on_disk(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if b"s3cr3t-word" in content(path)]


def content(path: Path) -> bytes:
    try:
        return path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else b""
    except FileNotFoundError:
        return b""  # it got its name, or went, while we looked


async def test_two_engines_see_the_same(engines: LocalEngines) -> None:
    one, other = await engines.open(), await engines.open()
    await other.list()
    task = a_task(engines, STUBBORN)
    await one.start(task)
    await wait_for_output(one, task, b"ready")
    assert await other.list() == await one.list()
    stream = one.watch()
    await other.stop(task.id, 0.0)
    ended = await wait_for(one, stream, task, TaskPhase.ENDED)
    assert await status_of(other, task) == ended


@pytest.mark.parametrize("grace", [-1.0, float("nan"), float("inf")])
async def test_an_impossible_grace_is_refused(engines: LocalEngines, grace: float) -> None:
    engine = await engines.open()
    task = a_task(engines, "sleep 600")
    await engine.start(task)
    with pytest.raises(Exception, match="grace_seconds"):
        await engine.stop(task.id, grace)
