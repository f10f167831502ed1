"""The logs of what an experiment, an endpoint or a schedule runs, as one.

Such work has no tasks of its own, so its log is that of its trials, replicas or runs, each line
behind the name of the one that wrote it. Followed, it takes in what starts later, and what starts
again, until the work has ended.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Final

from msgspec.structs import replace

from carrel_scheduler.api.dependencies import ApiDependencies
from carrel_scheduler.api.services.merged_logs import Logs, merged
from carrel_scheduler.engines.contract import LogRequest
from carrel_scheduler.workloads.contract import Subscription
from carrel_scheduler.workloads.controllers.contract import OWNER_LABEL
from carrel_scheduler.workloads.state.phases import AT_REST
from carrel_schema.objects import Workload

MOST_PARTS: Final = 100
"""The most parts in a log, the newest; each is an open file."""

Seen = set[tuple[str, int, int]]


async def logs_of_parts(
    deps: ApiDependencies, owner: Workload, request: LogRequest, *, timestamps: bool
) -> AsyncGenerator[bytes, None]:
    """The lines of all parts of ``owner``. Raises ``UnknownTask`` where none has a log."""
    subscription = deps.live.events() if request.follow else None
    try:
        page = await deps.ledger.list(
            Workload,
            projects=[owner.meta.project],
            labels={OWNER_LABEL: owner.meta.name},
            newest_first=True,
            limit=MOST_PARTS,
        )
        seen: Seen = set()
        begun: Logs = {
            name: log
            for part in reversed(page.items)
            for name, log in _logs(deps, owner, part, request, seen)
        }
        now = await deps.ledger.get_by_uid(Workload, owner.meta.uid)
        goes_on = subscription is not None and now.status.phase not in AT_REST
        later = _later(deps, owner, request, seen, subscription) if goes_on else None
        pieces = merged(begun, timestamps=timestamps, follow=request.follow, later=later)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()
    finally:
        if subscription is not None:
            subscription.close()


async def _later(
    deps: ApiDependencies,
    owner: Workload,
    request: LogRequest,
    seen: Seen,
    subscription: Subscription | None,
) -> AsyncGenerator[Logs, None]:
    """Logs of parts that begin from now on, until their owner has ended."""
    request = replace(request, tail_lines=None)
    while subscription is not None and (event := await subscription.next()) is not None:
        work = event.workload
        if work.meta.uid == owner.meta.uid:
            if event.type == "deleted" or work.status.phase in AT_REST:
                return
        elif begun := dict(_logs(deps, owner, work, request, seen)):
            yield begun


def _logs(
    deps: ApiDependencies, owner: Workload, part: Workload, request: LogRequest, seen: Seen
) -> Iterator[tuple[str, AsyncIterator[bytes]]]:
    """The logs of a part's tasks that have started and were not seen yet."""
    if part.spec.owner != owner.meta.uid:
        return  # a label of somebody's own says nothing
    for task in part.status.tasks:
        key = (part.meta.uid, task.index, task.attempt)
        if task.started_at is None or key in seen:
            continue
        seen.add(key)
        attempt = task.attempt if request.attempt is None else request.attempt
        name = part.meta.name if part.spec.tasks == 1 else f"{part.meta.name}-{task.index}"
        asked = replace(request, index=task.index, attempt=attempt, timestamps=True)
        yield name, deps.engine.logs(part.meta.uid, asked)
