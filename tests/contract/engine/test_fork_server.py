"""The process that forks supervisors: it may die at any time, and knows nothing of any task."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from carrel_scheduler.engines.contract import TaskPhase
from carrel_scheduler.engines.local import fork_server
from carrel_scheduler.engines.local.shim import process_tree
from contract.engine.local_engines import LocalEngines, supervisors, until
from contract.engine_tasks import a_task, output, run, status_of, wait_for, wait_for_output


def fork_servers(parent: int) -> list[int]:
    """Living fork servers of an engine's process: its children (what they fork looks alike)."""
    return [
        pid
        for pid, _ in process_tree.descendants(parent)
        if process_tree.stat_fields(pid)[1:2] == [str(parent)] and b".fork_server" in command(pid)
    ]


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""  # ended while we looked


async def test_one_fork_server_starts_all_tasks(engines: LocalEngines) -> None:
    engine = await engines.open()
    tasks = [a_task(engines, "echo here", index=index) for index in range(12)]
    await asyncio.gather(*(engine.start(task) for task in tasks))
    assert len(fork_servers(os.getpid())) == 1
    stream = engine.watch()
    for task in tasks:
        assert (await wait_for(engine, stream, task, TaskPhase.ENDED)).exit_code == 0


async def test_a_killed_fork_server_is_started_again_and_its_tasks_go_on(
    engines: LocalEngines,
) -> None:
    engine = await engines.open()
    first = a_task(engines, "echo ready; sleep 600")
    await engine.start(first)
    await wait_for_output(engine, first, b"ready")
    (server,) = fork_servers(os.getpid())
    os.kill(server, signal.SIGKILL)
    assert (await run(engine, a_task(engines, "true", uid="w2"))).exit_code == 0
    assert (await status_of(engine, first)).phase is TaskPhase.RUNNING
    assert len(fork_servers(os.getpid())) == 1


async def test_a_fork_server_that_dies_with_a_request_is_asked_for_nothing_twice(
    engines: LocalEngines,
) -> None:
    engine = await engines.open()
    await run(engine, a_task(engines, "true"))
    (server,) = fork_servers(os.getpid())
    os.kill(server, signal.SIGSTOP)
    task = a_task(engines, "echo here", uid="w2")
    start = asyncio.create_task(engine.start(task))

    async def claimed() -> bool:
        return (engines.folder("w2") / "supervisor.log").exists()

    await until(claimed)
    os.kill(server, signal.SIGKILL)
    await start
    ended = await wait_for(engine, engine.watch(), task, TaskPhase.ENDED)
    assert (ended.exit_code, ended.lost) == (0, False)
    assert await output(engine, task, index=0) == b"here\n"


async def test_a_fork_server_that_stands_still_holds_up_no_start(
    engines: LocalEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "ANSWER_SECONDS", 5)  # a new one has to start within it
    engine = await engines.open()
    await run(engine, a_task(engines, "true"))
    (server,) = fork_servers(os.getpid())
    os.kill(server, signal.SIGSTOP)
    tasks = [a_task(engines, "echo here", uid=f"w{number}") for number in range(2, 12)]
    stream = engine.watch()
    await asyncio.gather(*(engine.start(task) for task in tasks))
    for task in tasks:
        ended = await wait_for(engine, stream, task, TaskPhase.ENDED)
        assert (ended.exit_code, ended.lost) == (0, False)
    assert fork_servers(os.getpid()) != [server]


async def test_without_a_fork_server_nothing_starts_and_the_claim_is_taken_back(
    engines: LocalEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await engines.open()
    task = a_task(engines, "true")
    with monkeypatch.context() as broken:
        broken.setattr(fork_server, "shim_command", lambda *_: [sys.executable, "-c", ""])
        with pytest.raises(fork_server.NoSupervisor, match="starts supervisors"):
            await engine.start(task)
    assert not engines.folder().exists()
    assert (await run(engine, task)).exit_code == 0


async def test_a_supervisor_that_cannot_begin_says_why(
    engines: LocalEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = await engines.open()
    with monkeypatch.context() as broken:
        broken.setattr(os, "mkfifo", lambda *_: None)
        with pytest.raises(fork_server.NoSupervisor, match="No such file or directory: control"):
            await engine.start(a_task(engines, "true"))
    assert not engines.folder().exists()
    assert (await run(engine, a_task(engines, "true"))).exit_code == 0


async def test_the_fork_server_ends_with_its_engine_and_tasks_do_not(engines: LocalEngines) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        str(Path(__file__).with_name("starting_child.py")),
        str(engines.root),
        engines.node,
        "0",
    )

    async def busy() -> bool:
        return bool(fork_servers(child.pid) and supervisors(engines.root))

    await until(busy)
    (server,) = fork_servers(child.pid)
    child.kill()
    await child.wait()

    async def gone() -> bool:
        return process_tree.start_time(server) == 0

    await until(gone)
    engine = await engines.open()

    async def ended() -> bool:
        return all(status.phase is TaskPhase.ENDED for status in await engine.list())

    await until(ended)
    assert not all(status.lost for status in await engine.list())


async def test_no_secret_of_a_task_is_in_the_fork_server_or_in_anothers_supervisor(
    engines: LocalEngines,
) -> None:
    engine = await engines.open()
    for uid, secret in (("w1", "first-s3cr3t"), ("w2", "second-s3cr3t")):
        task = a_task(
            engines, "echo ready; sleep 600", uid=uid, secret_environment={"TOKEN": secret}
        )
        await engine.start(task)
        await wait_for_output(engine, task, b"ready")
    (server,) = fork_servers(os.getpid())
    own = {
        Path(f"/proc/{pid}/cwd").readlink().parent.name: pid for pid in supervisors(engines.root)
    }
    assert holds(own["w1"], b"first-s3cr3t")
    assert not holds(own["w2"], b"first-s3cr3t")
    assert not holds(server, b"first-s3cr3t")
    assert not holds(server, b"second-s3cr3t")


def holds(pid: int, word: bytes) -> bool:
    """Whether a word is anywhere in a process's memory."""
    return any(word in piece for piece in memory(pid))


def memory(pid: int) -> Iterator[bytes]:
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights = line.split()[:2]
            if rights.startswith("rw"):
                begin, end = (int(part, 16) for part in span.split("-"))
                file.seek(begin)
                yield file.read(end - begin)
