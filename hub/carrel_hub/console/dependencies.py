"""Graph of dependencies: what a workload waits for, and what waits for it, over several steps.

Predecessors are looked up one by one, as they may be old. Of what waits, the newest work of the
project is looked through. Both are bounded; a page says what is next to its own work in any case.
"""

import asyncio

from carrel.client import AsyncClient
from carrel.client.resources.workloads import PAGE
from carrel.errors import ApiError
from carrel.models import Workload
from carrel_hub.console import words
from carrel_hub.console.pictures.dependency_graph import Box
from carrel_hub.console.settings import Urls

MOST = 40
GONE = "gone"


async def boxes_around(client: AsyncClient, job: Workload, urls: Urls) -> list[Box]:
    """The work that is connected with a workload by `--after`, and itself; the oldest first."""
    found = {job.uid: job}
    gone: dict[str, Box] = {}
    await _add_predecessors(client, job, found, gone)
    await _add_dependents(client, job, found)
    known = sorted(found.values(), key=lambda one: (one.created_at, one.name))
    return [*gone.values(), *(_box(one, urls) for one in known)]


async def _add_predecessors(
    client: AsyncClient, job: Workload, found: dict[str, Workload], gone: dict[str, Box]
) -> None:
    """Level by level, until nothing is left or there are too many."""
    level = [job]
    while level and len(found) + len(gone) < MOST:
        ways = {way.uid: way.name for one in level for way in one.spec.after}
        new = {uid: name for uid, name in ways.items() if uid not in found and uid not in gone}
        names = list(new.values())[: MOST - len(found) - len(gone)]
        answers = await asyncio.gather(*(_look_up(client, job.project, name) for name in names))
        level = []
        for (uid, name), answer in zip(new.items(), answers, strict=False):
            if answer is None or answer.uid != uid:
                gone[uid] = Box(uid, name, GONE, "")
            else:
                found[uid] = answer
                level.append(answer)


async def _look_up(client: AsyncClient, project: str, name: str) -> Workload | None:
    try:
        return await client.get_workload(project, name)
    except ApiError as error:
        if error.status != 404:
            raise
        return None


async def _add_dependents(client: AsyncClient, job: Workload, found: dict[str, Workload]) -> None:
    page = await client.workload_page(job.project, newest_first=True, limit=PAGE)
    waits = {job.uid}
    for one in sorted(page.items, key=lambda one: (one.created_at, one.name)):
        if len(found) >= MOST:
            return
        if any(way.uid in waits for way in one.spec.after):
            waits.add(one.uid)
            found.setdefault(one.uid, one)


def _box(one: Workload, urls: Urls) -> Box:
    after = {way.uid: way.condition for way in one.spec.after}
    return Box(one.uid, one.name, words.phase(one), urls.job(one.project, one.name), after)
