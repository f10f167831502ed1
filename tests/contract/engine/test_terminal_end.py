"""The end of a terminal session, also of one that nobody waits for any more."""

import asyncio
import os
import signal
import sys

import pytest

from carrel_scheduler.engines.contract import EngineError, Stream
from carrel_scheduler.engines.local.terminal import LocalPipedCommand, LocalTerminal
from contract.engine_tasks import TIMEOUT_SECONDS

STUBBORN = "trap '' HUP TERM; echo ready; while :; do sleep 1; done"


async def session(*command: str) -> tuple[LocalTerminal, asyncio.subprocess.Process]:
    """A program on a terminal of its own."""
    master, slave = os.openpty()
    process = await asyncio.create_subprocess_exec(
        *command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
    )
    os.close(slave)
    return LocalTerminal(master, process), process


async def whole(terminal: LocalTerminal) -> bytes:
    found = b""
    while piece := await terminal.read():
        found += piece
    return found


async def test_a_read_that_is_given_up_again_and_again_loses_nothing() -> None:
    """A cancelled read has taken nothing from the terminal."""
    lines = 3000
    script = f"import sys\nfor n in range({lines}): print(n, flush=True)\nsys.stdin.read()"
    terminal, _ = await session(sys.executable, "-c", script)
    found = b""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not found.endswith(f"{lines - 1}\r\n".encode()):
            try:
                async with asyncio.timeout(0.0005):
                    found += await terminal.read()
            except TimeoutError:
                continue
    assert [int(line) for line in found.split()] == list(range(lines))
    await terminal.close()


async def test_who_gives_up_closing_leaves_no_process_and_no_terminal() -> None:
    terminal, process = await session("/bin/sh", "-c", STUBBORN)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert (await terminal.read()).startswith(b"ready")
        reading = asyncio.create_task(terminal.read())
        closing = asyncio.create_task(terminal.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert await process.wait() < 0
        assert await reading == b""
    with pytest.raises(EngineError, match="has ended"):
        await terminal.write(b"x")


async def test_what_does_not_hear_the_hang_up_is_killed() -> None:
    terminal, process = await session("/bin/sh", "-c", STUBBORN)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert (await terminal.read()).startswith(b"ready")
        code = await terminal.close()
    assert code == 128 + 9
    assert process.returncode == -9


async def test_a_terminal_ends_with_its_shell_though_a_child_goes_on() -> None:
    terminal, _ = await session("/bin/sh", "-c", "trap '' HUP; sleep 300 & echo $! done")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        said = await whole(terminal)
        assert await terminal.close() == 0
    child = int(said.split()[0])
    assert said.split()[1] == b"done"
    os.kill(child, signal.SIGKILL)


async def piped(script: str) -> LocalPipedCommand:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", script, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
    )
    return LocalPipedCommand(process)


async def test_a_command_ends_though_a_child_holds_its_output() -> None:
    command = await piped("sleep 300 & echo $!; echo wrong >&2; exit 5")
    async with asyncio.timeout(TIMEOUT_SECONDS):
        said = await command.read()
        assert await command.read() == b""
        assert (command.errors, await command.close()) == (b"wrong\n", 5)
    os.kill(int(said), signal.SIGKILL)


async def test_a_slow_reader_gets_all_that_a_command_wrote_before_it_ended() -> None:
    command = await piped("head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2")
    found = {Stream.OUTPUT: 0, Stream.ERRORS: 0}
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (piece := await command.read_piece())[1]:
            found[piece[0]] += len(piece[1])
            await asyncio.sleep(0.02)
        assert await command.close() == 0
    assert set(found.values()) == {1_000_000}
