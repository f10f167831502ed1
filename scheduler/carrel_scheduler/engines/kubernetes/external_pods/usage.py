"""Usage of external pods: rows of history, figures, holders of devices.

Each start of a scheduler closes the open rows of all external pods; those that still run begin a
new row as they are found, so use is counted without a gap and nothing is counted without end.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from carrel_scheduler.core.events import NodeSet
from carrel_scheduler.core.resources import MIB, MILLI
from carrel_scheduler.engines.external import PodCounts
from carrel_scheduler.engines.kubernetes.external_pods.pod_groups import (
    ExternalTask,
    ExternalWorkload,
)
from carrel_scheduler.engines.kubernetes.external_pods.requests import devices_wanted
from carrel_scheduler.engines.mig_resources import held_milli
from carrel_scheduler.ledger.records import Ledger, Transition
from carrel_schema.answers import DeviceHolder
from carrel_schema.history import PlaceUse
from carrel_schema.kinds import KINDS

HOLDS = "running"


def row(
    workload: ExternalWorkload,
    task: ExternalTask,
    phase: str,
    *,
    now: float,
    epoch: int,
    fact: NodeSet | None,
    place_of: Callable[[str], tuple[str, str]],
) -> Transition:
    """The row of a task after a change; each task of a gang has a history of its own.

    ``fact`` is what the core knows of its node; ``place_of`` tells the GPU type and the group of
    a node.
    """
    place = task.allocation if phase == HOLDS else None
    asked = task.request
    count, share = devices_wanted(asked, fact)
    gpu_type, node_group = place_of(place.node) if place else ("", "")
    held = PlaceUse(
        gpu_type=gpu_type,
        node_group=node_group,
        gpu_milli=min(share, MILLI) * count + held_milli(asked.extended) if place else 0,
        cpu_milli=asked.cpu_milli if place else 0,
        memory_bytes=asked.memory_mib * MIB if place else 0,
    )
    return Transition(
        at=now,
        epoch=epoch,
        workload_uid=workload.uid if workload.single else f"{workload.uid}-{task.index}",
        workload=workload.name,
        project=workload.grouping.project,
        user=workload.grouping.user,
        kind=workload.grouping.kind,
        attempt=0,
        from_phase="pending" if phase == HOLDS else HOLDS,
        to_phase=phase,
        gpu_milli=held.gpu_milli,
        cpu_milli=held.cpu_milli,
        memory_bytes=held.memory_bytes,
        borrowed=workload.borrowed and place is not None,
        node=place.node if place else "",
        places=(held,) if place else (),
        devices=place.devices if place else (),
    )


SCHEDULED, UNSCHEDULABLE, ERROR = "scheduled", "unschedulable", "error"
EVICTED = "evicted"


def pod_counts(workloads: Iterable[ExternalWorkload], tried: Counter[str]) -> PodCounts:
    """Counts of pending pods now, and of attempts since the start."""
    pending = Counter(active=0, gated=0, unschedulable=0)
    for workload in workloads:
        for task in workload.tasks:
            one = task.pod
            if one is None or one.node or task.allocation is not None:
                continue
            if one.gated:
                pending["gated"] += 1
            elif task.waits or not workload.queued:
                pending["unschedulable"] += 1
            else:
                pending["active"] += 1
    attempts = {result: tried[result] for result in (SCHEDULED, UNSCHEDULABLE, ERROR)}
    return PodCounts(pending=dict(pending), attempts=attempts, victims=tried[EVICTED])


def holder_of(
    workload: ExternalWorkload, gpu_milli: int, *, releasing: bool, color: int | None
) -> DeviceHolder:
    """A workload as the holder of a device."""
    places = [task for task in workload.tasks if task.allocation is not None]
    running = any(task.pod is not None and task.pod.node for task in places)
    return DeviceHolder(
        uid=workload.uid,
        name=workload.name,
        project=workload.grouping.project,
        user=workload.grouping.user,
        kind=workload.grouping.kind,
        gpu_milli=gpu_milli,
        borrowed=workload.borrowed,
        state="releasing" if releasing else "running" if running else "held",
        since=min((task.since for task in places), default=workload.grouping.created_at),
        color=color,
    )


LOOKED_AT: Final = 50_000
DAYS_SECONDS: Final = 31 * 86_400.0


async def close_left_open(ledger: Ledger, *, epoch: int, now: float) -> int:
    """Close open rows of external pods; returns the number.

    Raises what the ledger raises.
    """
    last: dict[str, Transition] = {}
    for row in await ledger.transitions(since=now - DAYS_SECONDS, limit=LOOKED_AT):
        if row.kind not in KINDS:
            last[row.workload_uid] = row
    open_rows = [row for row in last.values() if row.to_phase == HOLDS]
    closing = [_closed(row, epoch, now) for row in open_rows]
    if closing:
        await ledger.record(epoch=epoch, statuses=(), transitions=closing)
    return len(closing)


def _closed(row: Transition, epoch: int, now: float) -> Transition:
    return msgspec.structs.replace(
        row,
        id=0,
        at=max(now, row.at),
        epoch=epoch,
        from_phase=row.to_phase,
        to_phase="ended",
        gpu_milli=0,
        cpu_milli=0,
        memory_bytes=0,
        borrowed=False,
        node="",
        places=(),
        devices=(),
    )
