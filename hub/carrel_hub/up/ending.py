"""What goes on when Carrel stops, and what is stopped with it on request."""

import asyncio
from collections.abc import Sequence
from typing import Final

from carrel.client import AsyncClient
from carrel.errors import CarrelError
from carrel.models import HOLDING, Workload
from carrel_spawner.watching import wait_at_rest

SLACK_SECONDS: Final = 10.0


async def running(client: AsyncClient) -> list[Workload] | None:
    """What holds resources now; ``None`` when the scheduler cannot tell."""
    try:
        async with asyncio.timeout(5):
            return await client.list_workloads(phases=sorted(HOLDING))
    except (CarrelError, TimeoutError):
        return None


async def suspend_all(client: AsyncClient, workloads: Sequence[Workload]) -> None:
    """Suspend them and wait for their ends, as long as the longest grace period."""
    await asyncio.gather(*(_suspend(client, workload) for workload in workloads))


async def _suspend(client: AsyncClient, workload: Workload) -> None:
    await client.suspend(workload.project, workload.name)
    seconds = workload.spec.grace_seconds + SLACK_SECONDS
    await wait_at_rest(client, workload.project, workload.name, seconds)


def farewell(workloads: Sequence[Workload] | None, *, stopped: bool) -> str:
    """One line about what becomes of workspaces and jobs."""
    if workloads is None:
        return "Stopped. Workspaces and jobs go on; the next `carrel up` finds them again."
    if not workloads:
        return "Stopped. Nothing was running."
    what = _counted(workloads)
    if stopped:
        return f"Stopped, with {what}; suspended jobs go on with `carrel resume NAME`."
    goes, them = ("goes", "it") if len(workloads) == 1 else ("go", "them")
    return (
        f"Stopped. {what} {goes} on; the next `carrel up` finds {them} again "
        f"(`carrel up --stop-jobs` stops {them} too)."
    )


def _counted(workloads: Sequence[Workload]) -> str:
    desks = sum(one.spec.kind == "workspace" for one in workloads)
    jobs = len(workloads) - desks
    parts = []
    if desks:
        parts.append(f"{desks} workspace{'s' if desks != 1 else ''}")
    if jobs:
        parts.append(f"{jobs} job{'s' if jobs != 1 else ''}")
    return " and ".join(parts)
