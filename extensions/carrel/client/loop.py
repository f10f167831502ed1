"""An event loop in a thread of its own, so that plain code can call the asynchronous client.

A notebook's kernel has a running loop in its main thread, where ``asyncio.run`` is refused; a
thread with its own loop works there, in scripts, and keeps live views going while a cell computes.
One loop serves the whole process. Interrupting a waiting call (Ctrl-C, the stop button) cancels
what it waited for and leaves the loop in order.
"""

import asyncio
import atexit
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")
CANCEL_SECONDS = 5.0
ROUNDS_TO_CLOSE = 5  # closed transports give their sockets back some rounds later


class BackgroundLoop:
    """A thread that runs an event loop until ``stop``."""

    def __init__(self, name: str = "carrel-client") -> None:
        self.loop = asyncio.new_event_loop()
        self._kept: set[asyncio.Task[object]] = set()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run it in the loop and wait for its result. Raises ``RuntimeError`` inside the loop."""
        if threading.current_thread() is self._thread:
            coroutine.close()
            raise RuntimeError("a synchronous call inside the client's own event loop would hang")
        started: list[asyncio.Task[T]] = []
        finished = threading.Event()

        def start() -> None:
            task = self.loop.create_task(coroutine)
            task.add_done_callback(lambda _: finished.set())
            started.append(task)

        def cancel() -> None:
            if started:
                started[0].cancel()
            else:  # interrupted before the loop started it
                coroutine.close()
                finished.set()

        try:  # an interrupt may come at any line from here on, also inside the first call
            self.loop.call_soon_threadsafe(start)
            finished.wait()
        except BaseException:
            self.loop.call_soon_threadsafe(cancel)
            finished.wait(CANCEL_SECONDS)
            raise
        return started[0].result()

    def start(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run it in the loop without waiting; callable from anywhere, also from finalizers.

        A finalizer may come when the process ends and the loop has ended before it: nothing is
        left to be done then.
        """
        if self.loop.is_closed():
            coroutine.close()
            return
        self.loop.call_soon_threadsafe(self._keep, coroutine)

    def _keep(self, coroutine: Coroutine[Any, Any, object]) -> None:
        task = self.loop.create_task(coroutine)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)

    def call(self, function: Callable[[], T]) -> T:
        """Call a plain function in the loop and wait for its result."""

        async def wrapped() -> T:
            return function()

        return self.run(wrapped())

    def iterate(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        """The items one by one; leaving the loop early closes the generator."""

        async def step() -> tuple[T, ...]:
            async for item in items:
                return (item,)
            return ()

        try:
            while found := self.run(step()):
                yield found[0]
        finally:
            self.run(items.aclose())

    def stop(self) -> None:
        """Cancel all tasks of the loop and end the thread."""
        if not self._thread.is_alive():
            return
        self.run(_settle())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


async def _settle() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
    for _ in range(ROUNDS_TO_CLOSE):
        await asyncio.sleep(0)


class _ProcessLoop:
    """The process's loop. A forked child has no such thread and gets a new one."""

    lock = threading.Lock()
    loop: BackgroundLoop | None = None


def shared() -> BackgroundLoop:
    """The loop of this process, started when first asked for."""
    with _ProcessLoop.lock:
        if _ProcessLoop.loop is None:
            _ProcessLoop.loop = BackgroundLoop()
        return _ProcessLoop.loop


def _after_fork() -> None:
    _ProcessLoop.lock = threading.Lock()
    _ProcessLoop.loop = None


def _at_exit() -> None:
    if _ProcessLoop.loop is not None:
        _ProcessLoop.loop.stop()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
