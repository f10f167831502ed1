"""Reports the activity of a running server to the scheduler.

Looks at kernels and terminals every ``look_seconds``, listens to saves, and posts when
``PostTimer`` says so. That the scheduler is away, or back, is logged once.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from carrel.errors import CarrelError
from carrel.workspace.activity import ActivityReading, ActivityTracker
from carrel.workspace.status import WorkspaceStatus
from carrel.workspace.watchers import KernelWatcher, TerminalWatcher


@dataclass(slots=True)
class PostTimer:
    """Decides when the next post is due. All times in seconds of one clock.

    Attributes:
        interval: between posts when all is quiet.
        debounce: a change of busy waits so long, so that a burst of short cells is one post.
        longest_wait: the most that failures stretch the interval to.
    """

    interval: float = 10.0
    debounce: float = 0.5
    longest_wait: float = 60.0
    _posted_at: float | None = None
    _changed_at: float | None = None
    _failures: int = 0

    def changed(self, now: float) -> None:
        """Report a change between busy and idle."""
        if self._changed_at is None:
            self._changed_at = now

    def due_at(self, now: float) -> float:
        """The earliest time of the next post."""
        if self._posted_at is None:
            return now
        if self._failures:
            wait = min(self.interval * float(2 ** min(self._failures, 8)), self.longest_wait)
            return self._posted_at + max(wait, self.interval)
        regular = self._posted_at + self.interval
        if self._changed_at is None:
            return regular
        return min(regular, self._changed_at + self.debounce)

    def posted(self, now: float) -> None:
        """A post begins; it carries every change seen so far."""
        self._posted_at = now
        self._changed_at = None

    def succeeded(self) -> None:
        """The scheduler answered."""
        self._failures = 0

    def failed(self) -> None:
        """The scheduler did not answer, or refused."""
        self._failures += 1


log = logging.getLogger("carrel.workspace")
CONTENTS_SCHEMA = "https://events.jupyter.org/jupyter_server/contents_service/v1"
EDITS = frozenset({"create", "save", "upload", "rename", "copy", "delete"})


class ActivityReporter:
    """Watches one server and posts its activity until ``stop``."""

    def __init__(
        self,
        workspace: WorkspaceStatus,
        pace: PostTimer,
        *,
        kernels: Any,
        terminals: Any,
        events: Any,
        look_seconds: float = 1.0,
        clock: Callable[[], float] = time.time,
        tool_activity: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``kernels``, ``terminals`` and ``events`` are the server's managers and event logger.

        ``tool_activity``: when somebody was last at work in a tool beside them; 0: never.
        """
        self._workspace, self._pace, self._clock = workspace, pace, clock
        self._look_seconds = look_seconds
        self._tool_activity = tool_activity
        self.tracker = ActivityTracker(last_input_at=clock())
        self._kernels = KernelWatcher(kernels, self.tracker, clock, self._busy_changed)
        self._terminals = TerminalWatcher(terminals, self._input)
        self._events = events
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, on the running event loop."""
        self._events.add_listener(schema_id=CONTENTS_SCHEMA, listener=self._on_contents)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """End; nothing is posted any more."""
        self._events.remove_listener(schema_id=CONTENTS_SCHEMA, listener=self._on_contents)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        self._kernels.close()

    def reading(self) -> ActivityReading:
        """The activity now."""
        return self.tracker.reading(self._clock(), self._terminals.count)

    async def _run(self) -> None:
        while True:
            self._look()
            now = self._clock()
            if now >= self._pace.due_at(now):
                await self._post(now)
            wait = self._pace.due_at(self._clock()) - self._clock()
            await self._sleep(min(max(wait, 0.05), self._look_seconds))

    def _look(self) -> None:
        try:
            self._kernels.refresh()
            self._terminals.refresh()
        except Exception:
            # The managers are other people's code: one bad look must not end all heartbeats.
            log.exception("Reading the activity of kernels and terminals failed")
        self.tracker.input_seen(self._tool_activity())

    async def _post(self, now: float) -> None:
        self._pace.posted(now)
        away = bool(self._workspace.trouble)
        try:
            await self._workspace.report(self.reading())
        except CarrelError as error:
            self._pace.failed()
            if not away:
                log.warning("The scheduler did not take the activity report: %s", error)
            return
        self._pace.succeeded()
        if away:
            log.info("The scheduler accepts activity reports again.")

    async def _sleep(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        self._changed.clear()

    def _busy_changed(self) -> None:
        self._pace.changed(self._clock())
        self._changed.set()

    def _input(self) -> None:
        self.tracker.input_seen(self._clock())

    async def _on_contents(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        del logger, schema_id
        if data.get("action") in EDITS:
            self._input()
