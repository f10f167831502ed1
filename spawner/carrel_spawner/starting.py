"""The two waits of a start: for a place, and for the server that then runs there."""

import asyncio
from collections.abc import Collection
from contextlib import aclosing

from carrel.client import AsyncClient
from carrel.errors import ApiError
from carrel.models import Workload
from carrel_spawner.arrival import wait_for_answer
from carrel_spawner.bulletin import Bulletin
from carrel_spawner.connection import probing_session
from carrel_spawner.discretion import readable_by
from carrel_spawner.feed import feed_of
from carrel_spawner.verdict import Outcome, Verdict, judge


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
) -> None:
    """Wait while room is being made; return when it runs. Raises ``NotPlaced``.

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
            if verdict.outcome is Outcome.UP:
                return
    raise AssertionError("snapshots never end by themselves")


async def until_answering(
    client: AsyncClient, workload: Workload, url: str, bulletin: Bulletin
) -> None:
    """Wait until the server answers at ``url``. Raises ``NotPlaced`` when it ends before."""
    answer = asyncio.create_task(wait_for_answer(probing_session(), url))
    end = asyncio.create_task(_until_ended(client, workload))
    try:
        await asyncio.wait({answer, end}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise end.result()
        await answer
    finally:
        answer.cancel()
        end.cancel()
        await asyncio.gather(answer, end, return_exceptions=True)
    bulletin.post(90, "JupyterLab answers; opening it.")


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
