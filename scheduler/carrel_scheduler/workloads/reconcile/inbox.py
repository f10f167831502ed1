"""What waits for the loop: messages in the order in which they came, and a bell."""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from carrel_scheduler.workloads.reconcile.events import LoopEvent


class Inbox:
    """Used in the event loop only. Tens of messages may belong to one workload, so it is bare."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer, self._since = timer, 0.0
        self._messages: deque[LoopEvent] = deque()
        self._bell: asyncio.Event = asyncio.Event()

    def put(self, message: LoopEvent) -> None:
        """Add a message and ring."""
        if not self._messages:
            self._since = self._timer()
        self._messages.append(message)
        self._bell.set()

    def take(self) -> LoopEvent:
        """The oldest message; there must be one."""
        return self._messages.popleft()

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._messages)

    @property
    def age_seconds(self) -> float:
        """How long events have been waiting; 0 when none does."""
        return self._timer() - self._since if self._messages else 0.0

    @property
    def empty(self) -> bool:
        """Whether nothing waits."""
        return not self._messages

    async def wait(self, seconds: float | None) -> None:
        """Return once there is a message, or after so many seconds."""
        self._bell.clear()
        if self._messages:
            return
        try:
            # Not wait_for: it forgets a cancellation that comes together with a message.
            async with asyncio.timeout(seconds):
                await self._bell.wait()
        except TimeoutError:
            return
