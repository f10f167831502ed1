"""A server ends when it is told to, and not before what its threads do is done."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

SERVER = """
import asyncio, sys, time
from anyio import to_thread
from carrel.workspace.worker_threads import end_idle_threads

def save():
    if sys.argv[2] == "busy":
        loop.call_soon_threadsafe(loop.stop)
    time.sleep(float(sys.argv[1]))
    print("saved", flush=True)

async def call():
    await to_thread.run_sync(save)

async def for_ever():  # the pool's thread stays as long as the task that began its first call
    await call()
    print("idle", flush=True)
    loop.stop()
    await asyncio.Event().wait()

loop = asyncio.new_event_loop()
task = loop.create_task(for_ever())
loop.run_forever()
if sys.argv[3] == "ends":
    end_idle_threads()
    end_idle_threads()
"""


def served(seconds: str, state: str, end: str, timeout: float) -> str:
    """What a server says that is told to stop while its thread is idle, or busy."""
    command = [sys.executable, "-c", SERVER, seconds, state, end]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True)
    return done.stdout


def test_an_idle_thread_keeps_no_server_from_ending() -> None:
    assert served("0", "idle", "ends", 60) == "saved\nidle\n"


def test_without_that_the_server_would_stay() -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        served("0", "idle", "stays", 5)


def test_what_a_thread_is_busy_with_is_done_before() -> None:
    assert served("0.5", "busy", "ends", 60) == "saved\n"
