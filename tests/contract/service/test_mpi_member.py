"""`carrel-reach` and a member of an MPI gang as processes: output, exit codes, who is refused."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator

import pytest

from benchmarks.ports import free_port


def environment(port: int, member: str, token: str = "the-job") -> dict[str, str]:
    members = f"train-0=127.0.0.1:1,train-1=127.0.0.1:{port}"
    told = {"CARREL_MEMBERS": members, "CARREL_MEMBER": member, "CARREL_TASK_TOKEN": token}
    return {**os.environ, **told, "CARREL_JOIN_TIMEOUT": "120"}


async def reach(port: int, *words: str, token: str = "the-job") -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "carrel.job.mpi.rsh", "train-1", *words),
        env=environment(port, "train-0", token),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await asyncio.wait_for(process.communicate(), 180)
    return process.returncode or 0, out.decode(), error.decode()


@pytest.fixture
async def member() -> AsyncIterator[int]:
    """The port of a running member."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "carrel.job.mpi.member"), env=environment(port, "train-1")
    )
    yield port
    process.terminate()
    await process.wait()


async def test_a_command_runs_in_the_member_with_its_environment(member: int) -> None:
    script = '"echo $CARREL_MEMBER; echo wrong >&2; exit 5"'
    assert await reach(member, "sh", "-c", script) == (5, "train-1\n", "wrong\n")


async def test_words_go_through_no_shell(member: int) -> None:
    assert await reach(member, "echo", "a;", "echo", "$HOME") == (0, "a; echo $HOME\n", "")
    code, _, error = await reach(member, "no-such-program")
    assert (code, error) == (127, "no-such-program: No such file or directory\n")


async def test_another_job_is_refused(member: int) -> None:
    code, out, error = await reach(member, "echo", "hush", token="another-job")
    assert (code, out) == (255, "")
    assert "not a member of the same job" in error


async def ended(*words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await asyncio.wait_for(process.communicate(), 90)
    return process.returncode or 0, out.decode(), error.decode()


async def test_a_command_has_a_machine_of_its_own_name_where_users_may_make_one() -> None:
    host = (sys.executable, "-m", "carrel.job.mpi.host", "train-1")
    who = "import os, socket; print(socket.gethostname(), os.getuid(), os.getgid())"
    ways = [await ended("unshare", *way, "true") for way in (("--uts",), ("--user", "--uts"))]
    name = "train-1" if any(code == 0 for code, _, _ in ways) else socket.gethostname()
    told = f"{name} {os.getuid()} {os.getgid()}\n"
    assert await ended(*host, sys.executable, "-c", who) == (0, told, "")
    assert await ended(*host, "/no/such") == (127, "", "/no/such: No such file or directory\n")
