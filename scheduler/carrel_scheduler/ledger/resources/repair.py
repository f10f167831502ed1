"""Repair of differences between objects and rows after a crash, when a scheduler takes over.

Three things can have been under way: a creation (an entry and its first row, and no object yet), a
turn (statuses, and not yet the rows about them), a removal (no object any more, and not yet its
last row). Each is finished or taken back, so that use is counted to the end and no further.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from carrel_scheduler.core.mig import counted_gpu_milli
from carrel_scheduler.ledger.records import Transition
from carrel_scheduler.ledger.resources.conditions import HOLDING
from carrel_schema.history import PlaceUse
from carrel_schema.objects import ReasonInfo, Resources, Workload

AT_REST: Final = frozenset({"succeeded", "failed", "stopped"})
YOUNG_SECONDS: Final = 60.0
"""A creation by another process may still be under way for so long."""
REMOVED: Final = ReasonInfo(
    token="Removed",  # noqa: S106 - a word for the reason
    sentence="Its object was removed from the cluster.",
)
_MILLI: Final = 1000


class Repairs(NamedTuple):
    """The repairs to make.

    Attributes:
        unentered: objects without an entry, with their first rows.
        rows: that are missing.
        withdrawn: uids of entries whose objects were never made.
        gone: uids of entries whose objects are there no more.
    """

    unentered: Sequence[tuple[Workload, Transition]]
    rows: Sequence[Transition]
    withdrawn: Sequence[str]
    gone: Sequence[str]


def found(
    objects: Sequence[Workload],
    entries: Mapping[str, Workload],
    last: Mapping[str, Transition],
    *,
    epoch: int,
    now: float,
) -> Repairs:
    """Compare objects, entries and the last rows of both, all by uid."""
    there = {obj.meta.uid for obj in objects}
    unentered = [(obj, Transition.first(obj)) for obj in objects if obj.meta.uid not in entries]
    rows = [
        _row(obj, last.get(obj.meta.uid) or Transition.first(obj), epoch, now)
        for obj in objects
        if _differs(obj, last.get(obj.meta.uid))
    ]
    lost = [entry for uid, entry in entries.items() if uid not in there]
    begun = [entry for entry in lost if _never_made(last.get(entry.meta.uid))]
    ended = [entry for entry in lost if not _never_made(last.get(entry.meta.uid))]
    closing = [last[entry.meta.uid] for entry in ended]
    rows += [_closed(row, epoch, now) for row in closing if row.to_phase not in AT_REST]
    old = [entry for entry in begun if entry.meta.created_at < now - YOUNG_SECONDS]
    return Repairs(
        unentered,
        rows,
        withdrawn=[entry.meta.uid for entry in old],
        gone=[entry.meta.uid for entry in ended],
    )


def _never_made(last: Transition | None) -> bool:
    return last is None or not last.from_phase


def _differs(workload: Workload, last: Transition | None) -> bool:
    """Whether the status is of an epoch or attempt that the rows do not have."""
    status = workload.status
    if last is None:
        return status.phase != "pending"
    return (status.phase, status.attempt) != (last.to_phase, last.attempt)


def _row(workload: Workload, last: Transition, epoch: int, now: float) -> Transition:
    meta, spec, status = workload.meta, workload.spec, workload.status
    held = [task for task in status.tasks if task.place in ("held", "leaving")]
    tasks = held if status.phase in HOLDING else []
    first = tasks[0] if tasks else None
    in_hand = PlaceUse(
        gpu_milli=sum(_gpu_milli(spec.resources, task.devices) for task in tasks),
        cpu_milli=len(tasks) * spec.resources.cpu_milli,
        memory_bytes=len(tasks) * spec.resources.memory_bytes,
    )
    return Transition(
        at=max(now, last.at),
        epoch=epoch,
        workload_uid=meta.uid,
        workload=meta.name,
        project=meta.project,
        user=spec.user,
        kind=spec.kind,
        attempt=status.attempt,
        from_phase=last.to_phase,
        to_phase=status.phase,
        gpu_milli=in_hand.gpu_milli,
        cpu_milli=in_hand.cpu_milli,
        memory_bytes=in_hand.memory_bytes,
        borrowed=status.borrowed and bool(tasks),
        node=first.node if first else "",
        places=_place_use(in_hand, {task.node for task in tasks}, last),
        devices=first.devices if first else (),
        reason=status.reason,
    )


def _place_use(held: PlaceUse, nodes: set[str], last: Transition) -> tuple[PlaceUse, ...]:
    """The GPU type and node group, as far as the last row tells: all of it was on the same node."""
    if nodes != {last.node} or len(last.places) != 1:
        return ()
    known = last.places[0]
    return (msgspec.structs.replace(held, gpu_type=known.gpu_type, node_group=known.node_group),)


def _gpu_milli(resources: Resources, devices: Sequence[int]) -> int:
    """Thousandths of GPUs; of whole devices there may be fewer than were asked for."""
    if resources.gpu_milli < _MILLI:
        return counted_gpu_milli(resources)
    return len(devices) * _MILLI


def _closed(last: Transition, epoch: int, now: float) -> Transition:
    return Transition(
        at=max(now, last.at),
        epoch=epoch,
        workload_uid=last.workload_uid,
        workload=last.workload,
        project=last.project,
        user=last.user,
        kind=last.kind,
        attempt=last.attempt,
        from_phase=last.to_phase,
        to_phase="stopped",
        reason=REMOVED,
    )
