"""The background loop: results, errors, interrupts, forks."""

import asyncio
import inspect
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable

import pytest

from carrel.client import loop as loops
from carrel.client.loop import BackgroundLoop


@pytest.fixture
def background() -> BackgroundLoop:
    return loops.shared()


def test_results_and_errors_come_back(background: BackgroundLoop) -> None:
    async def fail() -> None:
        raise ValueError("inside")

    assert background.run(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ValueError, match="inside"):
        background.run(fail())


async def test_it_works_while_another_loop_runs_here(background: BackgroundLoop) -> None:
    assert background.run(asyncio.sleep(0, 3)) == 3


def test_called_from_inside_it_refuses_to_hang(background: BackgroundLoop) -> None:
    async def inside() -> None:
        background.run(asyncio.sleep(0))

    with pytest.raises(RuntimeError, match="would hang"):
        background.run(inside())


def test_an_interrupt_cancels_what_was_waited_for(
    background: BackgroundLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, cancelled = threading.Event(), threading.Event()

    async def long() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    real_wait = threading.Event.wait
    interrupts = [KeyboardInterrupt()]

    def interrupted(self: threading.Event, timeout: float | None = None) -> bool:
        if interrupts and threading.current_thread() is threading.main_thread():
            assert real_wait(started, 30)
            raise interrupts.pop()
        return real_wait(self, timeout)

    monkeypatch.setattr(threading.Event, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        background.run(long())
    assert cancelled.is_set()
    assert background.run(asyncio.sleep(0, "goes on")) == "goes on"


@pytest.mark.parametrize("told", [False, True])
def test_an_interrupt_while_the_loop_is_being_told_leaves_nothing_behind(
    background: BackgroundLoop, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    ended = threading.Event()

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.set()

    real_tell = background.loop.call_soon_threadsafe
    interrupts = [KeyboardInterrupt()]

    def interrupted(callback: Callable[[], object]) -> object:
        if not interrupts:
            return real_tell(callback)
        if told:
            real_tell(callback)
        raise interrupts.pop()

    items = background.iterate(numbers())
    assert next(items) == 1
    monkeypatch.setattr(background.loop, "call_soon_threadsafe", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(items)
    assert ended.is_set()


def test_leaving_an_iteration_early_closes_the_generator(background: BackgroundLoop) -> None:
    closed: list[bool] = []

    async def numbers() -> AsyncGenerator[int, None]:
        try:
            for number in range(10):
                yield number
        finally:
            closed.append(True)

    for number in background.iterate(numbers()):
        if number == 3:
            break
    assert closed == [True]


def test_stopping_cancels_what_is_left() -> None:
    own = BackgroundLoop("own")
    started = threading.Event()

    async def long() -> None:
        started.set()
        await asyncio.Event().wait()

    own.start(long())
    assert started.wait(30)
    own.stop()
    assert own.loop.is_closed()
    own.stop()


def test_a_forked_child_gets_a_loop_of_its_own() -> None:
    program = (
        "import asyncio, os\n"
        "from carrel.client import loop\n"
        "background = loop.shared()\n"
        "assert background.run(asyncio.sleep(0, 1)) == 1\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    fresh = loop.shared()\n"
        "    works = fresh is not background and fresh.run(asyncio.sleep(0, 2)) == 2\n"
        "    os._exit(0 if works else 1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.filterwarnings("error")
def test_what_comes_after_the_end_is_let_go_of() -> None:
    own = BackgroundLoop("own")
    own.stop()

    async def late() -> None:
        """Never runs."""

    coroutine = late()
    own.start(coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED
