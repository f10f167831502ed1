"""The live view of one training."""

import asyncio
import html
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import msgspec
import traitlets
from typing_extensions import override

from carrel import wording
from carrel.client import Client
from carrel.client.resources.workloads import all_or
from carrel.client.shared_events import changes
from carrel.errors import ApiError, CarrelError
from carrel.models import Event, Workload
from carrel.widgets import bundle, static_html
from carrel.widgets.job_state import LINES, JobState, describe
from carrel.widgets.live import WorkView

RETRY_SECONDS = 1.0
CROWDED_SECONDS = 15.0  # too many streams of this person are open
MIME = "application/vnd.carrel.job+json"


class JobView(WorkView):
    """State and reason, progress, curves, the last lines, and the buttons of one training."""

    _esm = bundle.module(*bundle.WORK, "curve.js", "tensorboard.js", "job.js")
    _css = bundle.text("views.css")

    curves = traitlets.Dict().tag(sync=True)
    lines: Any = traitlets.List().tag(sync=True)

    def __init__(self, client: Client, workload: Workload) -> None:
        self._story, self._complete, self._curves_read = JobState(workload), False, False
        self._moved = asyncio.Event()
        self._reading: asyncio.Task[float] | None = None
        super().__init__(client, **self._story.traits())

    @property
    @override
    def settled(self) -> bool:
        return self._complete

    @override
    def present(self) -> Mapping[str, Any]:
        return self._story.traits()

    @override
    async def follow(self) -> None:
        story, client = self._story, self._client.aio
        project, name = story.workload.project, story.workload.name
        self._curves_read = False
        output = asyncio.create_task(self._follow_output(project, name))
        try:
            async with aclosing(changes(client, project, name)) as events:
                async for event in events:
                    await self._take(event)
                    if self._ended:
                        break
            await self._last_output(output)
        except ApiError as error:
            if error.status != 404:
                raise
            story.gone = True
        finally:
            output.cancel()
        self._complete = self._ended

    @property
    def _ended(self) -> bool:
        """Whether the job has ended; a stopped one may be resumed."""
        return self._story.phase in ("succeeded", "failed", "deleted")

    async def _take(self, event: Event) -> None:
        story = self._story
        if not self._curves_read:
            found = await self._client.aio.metrics(
                story.workload.project, story.workload.name, max_points=200
            )
            story.take_curves(found)
            self._curves_read = True
            event = Event(type=event.type, workload=event.workload)
        story.take(event)
        self._moved.set()
        self.touch()

    @override
    def looked(self) -> None:
        super().looked()
        if self.seen:
            self._moved.set()
        elif self._reading is not None:
            self._reading.cancel()

    async def _follow_output(self, project: str, name: str) -> None:
        """Read the output of each attempt in turn, while the view is in sight."""
        read = -1
        while True:
            attempt = self._story.workload.status.attempt
            if self.seen and attempt > read and self._story.workload.holds_resources:
                if await self._read_run(project, name, attempt):
                    read = attempt
                continue
            self._moved.clear()
            await self._moved.wait()

    async def _read_run(self, project: str, name: str, attempt: int) -> bool:
        """Read an attempt's output; returns whether its end was reached."""
        self._reading = asyncio.create_task(self._read(project, name, attempt))
        try:
            await asyncio.wait({self._reading})
        finally:
            self._reading.cancel()
        if self._reading.cancelled():
            return False
        pause = self._reading.result()
        await asyncio.sleep(pause)
        return not pause

    async def _read(self, project: str, name: str, attempt: int) -> float:
        """Read an attempt's output; returns the seconds until a retry, 0 at its end."""
        index = all_or(None, self._story.workload)
        logs = self._client.aio.logs(
            project, name, follow=True, tail=LINES, attempt=attempt, index=index
        )
        begun = False
        try:
            async with aclosing(logs) as pieces:
                async for piece in pieces:
                    if not begun:
                        self._story.begin_output()
                        begun = True
                    self._story.take_text(piece)
                    self.touch()
        except CarrelError as error:
            # Not started yet, or the scheduler is away: the events say which; ask again then.
            crowded = isinstance(error, ApiError) and error.status == 429
            return CROWDED_SECONDS if crowded else RETRY_SECONDS
        return 0.0

    async def _last_output(self, output: asyncio.Task[None]) -> None:
        """Let the output of an ended run arrive; all of it is there a moment after the end."""
        if self._story.gone:
            return
        if self._story.lines:
            await asyncio.wait([output], timeout=RETRY_SECONDS / 2)
        else:
            await self._read_ended()

    async def _read_ended(self) -> None:
        """Read the output of a job that had ended before the view was shown."""
        story = self._story
        try:
            project, name = story.workload.project, story.workload.name
            index = all_or(None, story.workload)
            logs = self._client.aio.logs(project, name, tail=LINES, index=index)
            async with aclosing(logs) as pieces:
                async for piece in pieces:
                    story.take_text(piece)
        except CarrelError:
            return  # a training that never ran has printed nothing

    @property
    @override
    def workload(self) -> Workload:
        return self._story.workload

    @override
    def fallback(self) -> dict[str, Any]:
        workload, phase = self._story.workload, self._story.phase
        facts = describe(workload, phase)
        line = wording.summary(workload, time.time())
        drawn = "".join(static_html.curve(*one) for one in self._story.curves.items())
        body = static_html.job_card(facts, self._story.lines, drawn)
        return {
            "text/plain": line,
            "text/html": f"<div>{body}</div>" if body else html.escape(line),
            MIME: {"job": msgspec.to_builtins(workload), "phase": phase},
        }
