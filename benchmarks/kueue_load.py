"""The load of the Kueue benchmark: projects, workloads at their times in batches, and the end."""

import asyncio
import time
from collections.abc import Sequence

import aiohttp
import msgspec

from benchmarks.kueue_generator import Arrival, Queue

CORE = 1000
TICK_SECONDS = 0.02
LARGEST_BATCH = 1000
BATCHES_IN_FLIGHT = 2
JSON = {"Content-Type": "application/json"}


async def with_projects(session: aiohttp.ClientSession, api: str, queues: Sequence[Queue]) -> None:
    """Make a project for each queue; returns once all of them are in force."""
    for queue in queues:
        body = {
            "name": queue.name,
            "quota": {"gpus": 0, "cpu_millicores": queue.quota * CORE},
            "limit": {"cpu_millicores": queue.limit * CORE},
        }
        async with session.post(f"{api}/projects", json=body) as answer:
            if answer.status != 201:
                raise RuntimeError(f"{answer.status}: {await answer.text()}")


def item_of(one: Arrival) -> bytes:
    """The workload as the API takes it."""
    return msgspec.json.encode(
        {
            "name": one.name,
            "project": one.queue,
            "command": ["sleep", f"{one.kind.runtime_ms / 1000:g}"],
            "cpu_millicores": one.kind.request * CORE,
            "memory_bytes": 1 << 20,
            "priority": one.kind.priority,
        }
    )


async def submit_all(
    session: aiohttp.ClientSession, api: str, arrivals: Sequence[Arrival]
) -> float:
    """Submit all in time; returns when it began (epoch seconds)."""
    ready = [(one.at, item_of(one)) for one in arrivals]
    under_way: set[asyncio.Task[None]] = set()
    sent, began, clock = 0, time.time(), asyncio.get_running_loop().time
    start = clock()
    while sent < len(ready):
        due = sent
        while due < len(ready) and due - sent < LARGEST_BATCH and ready[due][0] <= clock() - start:
            due += 1
        if due == sent:
            await asyncio.sleep(TICK_SECONDS)
            continue
        body = b'{"items":[' + b",".join(item for _, item in ready[sent:due]) + b"]}"
        under_way.add(asyncio.create_task(_post(session, api, body)))
        sent = due
        if len(under_way) >= BATCHES_IN_FLIGHT:
            done, under_way = await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        else:
            await asyncio.sleep(TICK_SECONDS)
    await asyncio.gather(*under_way)
    return began


async def _post(session: aiohttp.ClientSession, api: str, body: bytes) -> None:
    async with session.post(f"{api}/workloads:batch", data=body, headers=JSON) as answer:
        found = await answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {found.decode()}")
    refused = [one for one in msgspec.json.decode(found)["items"] if one["status"] != 201]
    if refused:
        raise RuntimeError(f"not created: {refused[:3]}")


async def wait_for_the_end(session: aiohttp.ClientSession, api: str) -> None:
    """Ask twice a second whether any workload is not at its end."""
    phases = "&".join(f"phase={name}" for name in ("pending", "starting", "running", "preempting"))
    while True:
        async with session.get(f"{api}/workloads?limit=1&{phases}") as answer:
            if not msgspec.json.decode(await answer.read())["items"]:
                return
        await asyncio.sleep(0.5)
