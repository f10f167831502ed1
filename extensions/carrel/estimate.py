"""Estimates of the start and the end of work: an interval, or why there is none.

The end of what runs follows from the progress that it reports, else from succeeded runs of the same
name, and is not later than a limit that is declared. The start of what is pending follows from the
ends of what holds GPUs, taken in their order until there are enough for it and for those before it
in the queue. These are estimates of a person's kind, not promises: the scheduler does not use them.
"""

import asyncio
import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from carrel import wording
from carrel.client import AsyncClient
from carrel.models import Workload

MOST_READ: Final = 100
ACTIVE: Final = ("starting", "running", "preempting", "stopping")
UNTIL_STOPPED: Final = frozenset({"workspace", "schedule", "tensorboard", "inference"})
"""Kinds of work that have no end of their own."""
_NUMBER: Final = re.compile(r"-\d+$")
_SPREAD: Final = 0.25
"""Reported speed is taken to change by so much either way."""
FEWEST_RUNS: Final = 1


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """An interval of epoch seconds, or why there is none.

    Attributes:
        early: hardly before this; ``None``: not known.
        late: hardly after this; ``None``: not known.
        why: a clause, ``by its reported progress`` or ``it reports no progress``.
    """

    early: float | None = None
    late: float | None = None
    why: str = ""

    @property
    def known(self) -> bool:
        """Whether there is an interval."""
        return self.early is not None and self.late is not None


def base_name(name: str) -> str:
    """The name without its number: runs of one name are ``train-1``, ``train-2``."""
    return _NUMBER.sub("", name)


def end_of(workload: Workload, past: Iterable[Workload], now: float) -> Estimate:
    """An estimate of the end of running work; ``past`` is other work, among it earlier runs."""
    status = workload.status
    if status.phase not in ("running", "starting"):
        return Estimate(why="it does not run")
    if status.started_at is None:
        return Estimate(why="what it is made of ends at its own time")
    found = _by_progress(workload, now) or _by_past(workload, past, now)
    stops = status.limits.stops_at if status.limits is not None else None
    if found is None and stops is not None:
        return Estimate(early=now, late=max(stops, now), why="by its time limit at the latest")
    if found is None:
        return Estimate(
            why="it reports no `total` to carrel.report and no run of its name has succeeded"
        )
    if stops is not None and found.late is not None and found.late > stops:
        return msgspec.structs.replace(found, late=stops, early=min(found.early or stops, stops))
    return found


def _by_progress(workload: Workload, now: float) -> Estimate | None:
    seen, started = workload.status.progress, workload.status.started_at
    if seen is None or not seen.total or seen.done <= 0 or started is None:
        return None
    left = seen.total - seen.done
    ran = max(seen.at - started, 1e-3)
    seconds = left / seen.rate if seen.rate else left * ran / seen.done
    at = max(seen.at, now - seconds)  # silent for longer than the rest should take
    return Estimate(
        early=max(at + seconds * (1 - _SPREAD), now),
        late=max(at + seconds * (1 + _SPREAD), now),
        why="by its reported progress",
    )


def _by_past(workload: Workload, past: Iterable[Workload], now: float) -> Estimate | None:
    name, started = base_name(workload.name), workload.status.started_at
    lasted = sorted(
        one.status.ended_at - one.status.started_at
        for one in past
        if one.status.phase == "succeeded"
        and base_name(one.name) == name
        and one.project == workload.project
        and one.spec.kind == workload.spec.kind
        and one.status.started_at is not None
        and one.status.ended_at is not None
    )
    if len(lasted) < FEWEST_RUNS or started is None:
        return None
    runs = "1 earlier run" if len(lasted) == 1 else f"{len(lasted)} earlier runs"
    early, late = started + lasted[0], started + lasted[-1]
    if len(lasted) == 1:
        early, late = started + lasted[0] * (1 - _SPREAD), started + lasted[0] * (1 + _SPREAD)
    return Estimate(early=max(early, now), late=max(late, now), why=f"by {runs} of its name")


def start_of(
    workload: Workload, others: Sequence[Workload], past: Iterable[Workload], now: float
) -> Estimate:
    """An estimate of the start of pending work; ``others`` is all work that the caller sees."""
    if workload.status.phase != "pending":
        return Estimate(why="it is not pending")
    if workload.status.not_before is not None and workload.status.not_before > now:
        at = workload.status.not_before
        return Estimate(early=at, late=at + 60.0, why="by its pause after a failure")
    place = workload.status.queue_position
    needed = workload.spec.total_gpus * workload.spec.tasks
    if place is None:
        return Estimate(why="its place in the queue is being decided")
    if not needed:
        return Estimate(why="it needs no GPU, and processors and memory are not foreseen")
    before = sum(
        one.spec.total_gpus * one.spec.tasks
        for one in others
        if one.status.phase == "pending" and (one.status.queue_position or place) < place
    )
    history = list(past)
    ends = [
        (one.spec.total_gpus * one.spec.tasks, end_of(one, history, now))
        for one in others
        if one.holds_resources and one.spec.gpus
    ]
    coming = sorted(
        (end.early, end.late, gpus)
        for gpus, end in ends
        if end.early is not None and end.late is not None
    )
    freed = 0.0
    latest = now
    for early, late, gpus in coming:
        freed += gpus
        latest = max(latest, late)
        if freed >= before + needed:
            return Estimate(early=early, late=latest, why="by the ends of what runs before it")
    silent = len(ends) - len(coming)
    return Estimate(
        why=f"{silent} of {len(ends)} that hold GPUs do not say when they end"
        if silent
        else "what you can see of the running work does not free enough GPUs for it"
    )


def sentence(workload: Workload, found: Estimate, now: float) -> str:
    """The estimate in words; empty for work that is at rest or only ends."""
    if workload.at_rest or workload.status.phase in ("preempting", "stopping"):
        return ""
    verb = "start" if workload.status.phase == "pending" else "end"
    if found.early is None or found.late is None:
        return f"When it {verb}s is not known: {found.why}."
    first, last = (wording.duration(max(at - now, 0.0)) for at in (found.early, found.late))
    span = f"within {last}" if found.early <= now else f"in {first} to {last}"
    if first == last:
        span = f"in about {last}"
    return f"Likely to {verb} {span}, {found.why}."


async def read(client: AsyncClient, workload: Workload, now: float) -> Estimate:
    """The estimate of one piece of work: of its start while it is pending, else of its end.

    Raises ``CarrelError``.
    """
    if workload.status.phase == "pending":
        return (await starts(client, [workload], now))[workload.uid]
    if workload.spec.kind in UNTIL_STOPPED:
        return Estimate(why="it runs until it is stopped")
    past = await client.workload_page(
        workload.project,
        phases=("succeeded",),
        kind=workload.spec.kind,
        search=base_name(workload.name),
        newest_first=True,
        limit=20,
    )
    return end_of(workload, past.items, now)


async def starts(
    client: AsyncClient, pending: Iterable[Workload], now: float
) -> dict[str, Estimate]:
    """Estimates of the starts of pending work, by uid. Raises ``CarrelError``."""
    wanted = list(pending)
    if not wanted:
        return {}
    active, waiting, past = await asyncio.gather(
        client.workload_page(phases=ACTIVE, parts=True, limit=MOST_READ),
        client.workload_page(phases=("pending",), parts=True, limit=MOST_READ),
        client.workload_page(phases=("succeeded",), newest_first=True, limit=100),
    )
    if active.next or waiting.next:
        return dict.fromkeys(
            (one.uid for one in wanted),
            Estimate(why=f"more than {MOST_READ} pieces of work run or wait"),
        )
    others = [*active.items, *waiting.items]
    return {one.uid: start_of(one, others, past.items, now) for one in wanted}
