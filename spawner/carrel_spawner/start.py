"""The waits of a start, for room and for the server that then runs there, and their progress.

The scheduler's reason decides: room that is being freed for the workspace is worth waiting for,
everything else is an answer that one should get at once instead of a page that never ends.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from carrel.client import AsyncClient
from carrel.errors import ApiError
from carrel.models import Reason, Workload
from carrel_spawner.rendering import readable_by, said
from carrel_spawner.watch import watch_of

_STARTING: Final = "Starting"
_WAITS_FOR_ROOM: Final = "WaitsForRoom"
_NEVER_FITS: Final = "NeverFits"
_QUOTA_TOKENS: Final = frozenset(
    {
        "QuotaUsed",
        "OverUserLimit",
        "OverLimit",
        "OverNodeGroupLimit",
        "NonPreemptibleBeyondQuota",
        "OverQuotaOff",
    }
)

T = TypeVar("T")


class StartStage(StrEnum):
    """The stage of a start, or its end."""

    WAIT = "wait"
    PLACED = "placed"
    UP = "up"
    REFUSED = "refused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class StartStatus:
    """The stage of a start, with its text.

    Attributes:
        percent: how far the start is, for the progress bar.
        because: label of a refusal: ``quota``, ``capacity``, ``never``, ``stopped`` or ``exited``.
    """

    stage: StartStage
    percent: int
    sentence: str
    help: str = ""
    because: str = ""


def start_status(workload: Workload) -> StartStatus:
    """The meaning of the workload's phase and reason for its owner, who waits for the workspace."""
    status = workload.status
    if status.phase == "running":
        return StartStatus(StartStage.UP, 60, "Your place is ready; JupyterLab is starting.")
    if status.phase == "starting":
        return StartStatus(StartStage.PLACED, 50, "Your place is ready; the workspace is starting.")
    if status.phase == "pending":
        return _waiting(status.reason)
    if workload.at_rest or status.phase in ("stopping", "preempting"):
        return _ended(workload)
    return StartStatus(StartStage.WAIT, 20, f"The workspace is {status.phase}.")


def _waiting(reason: Reason | None) -> StartStatus:
    if reason is None:
        return StartStatus(StartStage.WAIT, 10, "Asking the scheduler for a place.")
    if reason.cls == "starting" or reason.token == _STARTING:
        return StartStatus(
            StartStage.WAIT, 40, reason.sentence or "A place was found.", reason.help
        )
    if is_promised(reason):
        return StartStatus(StartStage.WAIT, 25, reason.sentence, reason.help)
    if reason.cls == "never" or reason.token == _NEVER_FITS:
        because = "never"
    elif reason.token in _QUOTA_TOKENS:
        because = "quota"
    else:
        because = "capacity"
    return StartStatus(StartStage.REFUSED, 100, reason.sentence, reason.help, because)


def is_promised(reason: Reason) -> bool:
    """Whether room is being freed for this very workload, so that waiting is worth it."""
    if reason.data.get("nominated"):
        return True
    holders = reason.data.get("holders") or ()
    return reason.token == _WAITS_FOR_ROOM and any(_gives_way(holder) for holder in holders)


def _gives_way(holder: Any) -> bool:
    return isinstance(holder, Mapping) and bool(holder.get("giving_way"))


def _ended(workload: Workload) -> StartStatus:
    reason = workload.status.reason
    if reason is not None and reason.sentence:
        because = "exited" if workload.status.phase in ("failed", "succeeded") else "stopped"
        return StartStatus(StartStage.ENDED, 100, reason.sentence, reason.help, because)
    return StartStatus(
        StartStage.ENDED, 100, "The workspace ended before it was ready.", "", "exited"
    )


class ProgressLog:
    """The progress of one start: written by ``start()``, read by any number of progress pages.

    A reader that comes late gets everything from the beginning. Reading never raises and ends when
    the start does. Not thread-safe; lives in the Hub's event loop.
    """

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._closed = False
        self._changed = asyncio.Event()

    def post(self, percent: int, message: str) -> None:
        """Add an event, unless it repeats the last one."""
        event = {
            "progress": max(percent, self._percent()),
            "message": message,
            "html_message": str(said(message)),
        }
        if not self._events or self._events[-1]["message"] != message:
            self._events.append(event)
            self._wake()

    @property
    def last(self) -> str:
        """The latest message; empty without any."""
        return str(self._events[-1]["message"]) if self._events else ""

    def close(self) -> None:
        """The start has ended."""
        self._closed = True
        self._wake()

    async def follow(self) -> AsyncIterator[dict[str, Any]]:
        """Yield all events from the first on, until the log is closed."""
        position = 0
        while True:
            changed = self._changed
            while position < len(self._events):
                yield dict(self._events[position])
                position += 1
            if self._closed:
                return
            await changed.wait()

    def _percent(self) -> int:
        """The bar never runs backwards."""
        return int(self._events[-1]["progress"]) if self._events else 0

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class StartFailed(Exception):  # noqa: N818 - an outcome to explain, not a mishap
    """The workload waits for what will not come soon, or has ended."""

    def __init__(self, status: StartStatus, workload: Workload) -> None:
        super().__init__(status.sentence)
        self.status, self.workload = status, workload


async def until_placed(
    client: AsyncClient,
    workload: Workload,
    progress_log: ProgressLog,
    *,
    projects: Collection[str],
    settle_seconds: float,
    awaited: Collection[StartStage] = (StartStage.UP,),
) -> Workload:
    """Wait while room is being made; the workload once it is there. Raises ``StartFailed``.

    ``awaited``: what is waited for: that it runs (``UP``), or has a place (``PLACED``).

    What is told on the way is fit for a member of ``projects``.

    A refusal must still stand after ``settle_seconds``: the scheduler may be in the middle of
    deciding.
    """
    project, name = workload.project, workload.name
    async with aclosing(watch_of(client).changes(workload)) as snapshots:
        async for latest in snapshots:
            seen = readable_by(latest, projects)
            status = start_status(seen)
            if status.stage is StartStage.REFUSED:
                await asyncio.sleep(settle_seconds)
                seen = readable_by(await client.get_workload(project, name), projects)
                status = start_status(seen)
            if status.stage in (StartStage.REFUSED, StartStage.ENDED):
                raise StartFailed(status, seen)
            progress_log.post(status.percent, f"{status.sentence} {status.help}".strip())
            if status.stage in awaited:
                return seen
    raise AssertionError("snapshots never end by themselves")


async def until_ready(
    client: AsyncClient,
    workload: Workload,
    arriving: Coroutine[Any, Any, T],
    progress_log: ProgressLog,
) -> T:
    """The result of ``arriving``, unless the workload ends before. Then raises ``StartFailed``."""
    arrival = asyncio.create_task(arriving)
    end = asyncio.create_task(_until_ended(client, workload))
    try:
        await asyncio.wait({arrival, end}, return_when=asyncio.FIRST_COMPLETED)
        if not arrival.done():
            raise end.result()
        arrived = await arrival
    finally:
        arrival.cancel()
        end.cancel()
        await asyncio.gather(arrival, end, return_exceptions=True)
    progress_log.post(90, "JupyterLab answers; opening it.")
    return arrived


async def _until_ended(client: AsyncClient, workload: Workload) -> StartFailed:
    latest = workload
    try:
        async with aclosing(watch_of(client).changes(workload)) as snapshots:
            async for latest in snapshots:
                status = start_status(latest)
                if status.stage is StartStage.ENDED:
                    return StartFailed(status, latest)
    except ApiError as error:
        if error.status != 404:
            raise
    gone = StartStatus(
        StartStage.ENDED, 100, "The workspace was removed while it started.", "", "stopped"
    )
    return StartFailed(gone, latest)
