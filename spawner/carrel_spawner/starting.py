"""The two waits of a start: for a place, and for the server that then runs there."""

import asyncio
from collections.abc import Collection, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from carrel.client import AsyncClient
from carrel.errors import ApiError
from carrel.models import Workload
from carrel_spawner.bulletin import Bulletin
from carrel_spawner.discretion import readable_by
from carrel_spawner.feed import feed_of
from carrel_spawner.verdict import Outcome, Verdict, judge

T = TypeVar("T")


class NotPlaced(Exception):  # noqa: N818 - an outcome to explain, not a mishap
    """The workload waits for what will not come soon, or has ended."""

    def __init__(self, verdict: Verdict, workload: Workload) -> None:
        super().__init__(verdict.sentence)
        self.verdict, self.workload = verdict, workload


async def until_placed(
    client: AsyncClient,
    workload: Workload,
    bulletin: Bulletin,
    *,
    projects: Collection[str],
    settle_seconds: float,
    enough: Collection[Outcome] = (Outcome.UP,),
) -> None:
    """Wait while room is being made; return when it is there. Raises ``NotPlaced``.

    ``enough``: what is waited for: that it runs (``UP``), or has a place (``PLACED``).

    What is told on the way is fit for a member of ``projects``.

    A refusal must still stand after ``settle_seconds``: the scheduler may be in the middle of
    deciding.
    """
    project, name = workload.project, workload.name
    async with aclosing(feed_of(client).changes(workload)) as snapshots:
        async for latest in snapshots:
            seen = readable_by(latest, projects)
            verdict = judge(seen)
            if verdict.outcome is Outcome.REFUSED:
                await asyncio.sleep(settle_seconds)
                seen = readable_by(await client.get_workload(project, name), projects)
                verdict = judge(seen)
            if verdict.outcome in (Outcome.REFUSED, Outcome.ENDED):
                raise NotPlaced(verdict, seen)
            bulletin.post(verdict.percent, f"{verdict.sentence} {verdict.help}".strip())
            if verdict.outcome in enough:
                return
    raise AssertionError("snapshots never end by themselves")


async def until_arrived(
    client: AsyncClient, workload: Workload, arriving: Coroutine[Any, Any, T], bulletin: Bulletin
) -> T:
    """The result of ``arriving``, unless the workload ends before. Then raises ``NotPlaced``."""
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
    bulletin.post(90, "JupyterLab answers; opening it.")
    return arrived


async def _until_ended(client: AsyncClient, workload: Workload) -> NotPlaced:
    latest = workload
    try:
        async with aclosing(feed_of(client).changes(workload)) as snapshots:
            async for latest in snapshots:
                verdict = judge(latest)
                if verdict.outcome is Outcome.ENDED:
                    return NotPlaced(verdict, latest)
    except ApiError as error:
        if error.status != 404:
            raise
    gone = Verdict(Outcome.ENDED, 100, "The workspace was removed while it started.", "", "stopped")
    return NotPlaced(gone, latest)
