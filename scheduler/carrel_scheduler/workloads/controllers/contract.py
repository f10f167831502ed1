"""The interface of controllers: what a controller is given, and what it returns."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from carrel_scheduler.workloads.state.phases import AT_REST
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Phase, ReasonInfo, Workload, WorkloadSpec, WorkloadStatus

OWNER_LABEL: Final = "carrel.dev/owner"


@dataclass(frozen=True, slots=True)
class NewPart:
    """A part to make.

    Attributes:
        number: its number; a part with that number that is there already is left as it is.
        name: of the workload, free in the project; the manager gives it owner and number.
        spec: complete but for ``owner``, ``part`` and ``user``.
    """

    number: int
    name: str
    spec: WorkloadSpec
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class DesiredState:
    """The state that a controller wants. Everything is done in this order, and may be repeated.

    Attributes:
        status: the composite workload's new status; one that equals the stored one is not written.
        changed: parts with a changed specification (the same uid).
        deleted: uids of parts to end and remove.
        created: parts to make.
        look_again_at: look by then, even if nothing happens; epoch seconds.
    """

    status: WorkloadStatus
    changed: list[Workload] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    created: list[NewPart] = field(default_factory=list)
    look_again_at: float | None = None


class Controller(Protocol):
    """A controller of one kind of composite work."""

    @property
    def kind(self) -> WorkloadKind:
        """The kind of workload that the controller manages."""
        ...

    async def look(self, owner: Workload, parts: Sequence[Workload], now: float) -> DesiredState:
        """Compute the desired state.

        Args:
            owner: the composite workload; not to be changed.
            parts: all of its parts in the order of their numbers, ended ones too; not to be
                changed (``msgspec.structs.replace`` and ``copy.deepcopy`` make new ones).
            now: epoch seconds.

        Never called for one that is being deleted: the manager ends its parts and removes it.
        """
        ...

    async def removed(self, owner: Workload) -> None:
        """Release what was kept for a composite workload that was deleted."""
        ...


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
    """Whether the part stays in its phase unless somebody changes it."""
    return part.status.phase in AT_REST


def suspended(part: Workload) -> Workload:
    """The part with a specification that stops it and keeps its definition."""
    changed = copy.deepcopy(part)
    changed.spec.suspend = True
    return changed


def resumed(part: Workload) -> Workload:
    """The part with a specification that runs it again."""
    changed = copy.deepcopy(part)
    changed.spec.suspend = False
    changed.spec.resumes += 1
    return changed


def to_suspend(parts: Sequence[Workload]) -> list[Workload]:
    """The parts that are not suspended yet, with a specification that suspends them."""
    return [suspended(part) for part in parts if not at_rest(part) and not part.spec.suspend]


def to_resume(parts: Sequence[Workload]) -> list[Workload]:
    """The parts that ``to_suspend`` stopped, with a specification that runs them again."""
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
