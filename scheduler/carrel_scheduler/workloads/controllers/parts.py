"""Small things that controllers say about parts."""

import copy
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from carrel_scheduler.workloads.lifecycle.phases import AT_REST
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Phase, ReasonInfo, Workload, WorkloadStatus

KIND_OF_PARTS: Final[Mapping[WorkloadKind, WorkloadKind]] = {
    "experiment": "trial",
    "inference": "replica",
}


def is_part_of(part: Workload, owner: Workload) -> bool:
    """Whether work that names an owner is of the kind, user and project of that owner's parts."""
    kind = KIND_OF_PARTS.get(owner.spec.kind)
    if owner.spec.kind == "schedule" and owner.spec.schedule is not None:
        kind = owner.spec.schedule.runs
    return (
        part.spec.owner == owner.meta.uid
        and part.spec.kind == kind
        and part.spec.user == owner.spec.user
        and part.meta.project == owner.meta.project
    )


def at_rest(part: Workload) -> bool:
    """Whether nothing more happens to it by itself."""
    return part.status.phase in AT_REST


def suspended(part: Workload) -> Workload:
    """The part, asked to stop and keep its definition."""
    changed = copy.deepcopy(part)
    changed.spec.suspend = True
    return changed


def resumed(part: Workload) -> Workload:
    """The part, asked to run again."""
    changed = copy.deepcopy(part)
    changed.spec.suspend = False
    changed.spec.resumes += 1
    return changed


def to_suspend(parts: Sequence[Workload]) -> list[Workload]:
    """Those that have not been asked yet, asked to stop."""
    return [suspended(part) for part in parts if not at_rest(part) and not part.spec.suspend]


def to_resume(parts: Sequence[Workload]) -> list[Workload]:
    """Those that were stopped by ``to_suspend``, asked to run again."""
    return [resumed(part) for part in parts if part.status.phase == "stopped" and part.spec.suspend]


def moved(
    owner: Workload, phase: Phase, now: float, reason: ReasonInfo | None = None
) -> WorkloadStatus:
    """The composite workload's status in a phase, with the times that follow; a new one."""
    status = msgspec.structs.replace(owner.status)
    status.observed_generation = owner.meta.generation
    if phase == status.phase:
        status.reason = reason
        return status
    status.phase, status.reason = phase, reason
    if phase == "running":
        status.started_at = now
        status.first_started_at = status.first_started_at or now
        status.ended_at = None
    if phase in AT_REST:
        status.ended_at = now
    if phase == "pending":
        status.queued_at, status.started_at, status.ended_at = now, None, None
    return status
