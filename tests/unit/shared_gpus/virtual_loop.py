"""An event loop whose time passes only when nothing else is left to do."""

import asyncio
import selectors
from collections.abc import Awaitable, Callable
from typing import Any

from typing_extensions import override


class _Jumping(selectors.DefaultSelector):
    """A selector that moves the time on in place of waiting."""

    elapsed = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[Any]:
        found = super().select(0)
        if not found and timeout is None:
            raise RuntimeError("everybody waits for something that never comes")
        if not found and timeout:
            self.elapsed += timeout
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module."""

    def __init__(self) -> None:
        self.jumping = _Jumping()
        super().__init__(self.jumping)

    @override
    def time(self) -> float:
        return self.jumping.elapsed


def in_virtual_time(main: Callable[[], Awaitable[None]]) -> None:
    """Run to the end."""

    async def run() -> None:
        await main()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(run())
