"""Work that is begun by the clock: when a run is due, which one, and which of the ended ones stay.

``next_at`` of the status is the first time that nothing was decided about yet. Times are decided
about in one look up to now: the last of them begins a run if it is not too long ago and no run is
in its way, all before it were missed. A run carries the time that it is for: a look after a crash
finds the run that was begun and not recorded, and begins none twice. Suspended, nothing is begun;
what runs goes on, and times that pass meanwhile are nobody's.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from carrel_scheduler.policy import cron
from carrel_scheduler.workloads.controllers.contract import DesiredState, NewPart, at_rest, moved
from carrel_scheduler.workloads.state import reasons
from carrel_schema.kinds import WorkloadKind
from carrel_schema.objects import Workload, WorkloadSpec
from carrel_schema.sections import ScheduleSpec, ScheduleStatus

DUE_LABEL: Final = "carrel.dev/due-at"
LONGEST_NAME: Final = 63


class Schedules:
    """The controller of schedules; pure."""

    kind: WorkloadKind = "schedule"

    async def look(self, owner: Workload, parts: Sequence[Workload], now: float) -> DesiredState:
        """Compute the run that is due now, and the time of the next pass."""
        return decide(owner, parts, now)

    async def removed(self, owner: Workload) -> None:
        """No effect: nothing is kept for a schedule."""


def decide(owner: Workload, parts: Sequence[Workload], now: float) -> DesiredState:
    """The desired state of a schedule at a time."""
    spec = owner.spec.schedule or ScheduleSpec(cron="0 0 1 1 *")
    known = owner.status.schedule or ScheduleStatus()
    if owner.spec.suspend:
        wanted = DesiredState(moved(owner, "stopped", now, reasons.suspended(owner.spec)))
        wanted.status.schedule = msgspec.structs.replace(known, next_at=None)
    else:
        wanted = DesiredState(moved(owner, "running", now))
        next_at = known.next_at
        if next_at is None:
            since = now if owner.status.phase == "stopped" else owner.meta.created_at
            next_at = cron.after(spec.cron, spec.time_zone, since)
        known = msgspec.structs.replace(known, next_at=next_at)
        if next_at is not None and next_at <= now:
            known = _due(owner, spec, known, parts, now, wanted)
        wanted.status.schedule = known
        wanted.look_again_at = known.next_at
    wanted.deleted += _surplus(spec, parts)
    return wanted


def _due(
    owner: Workload,
    spec: ScheduleSpec,
    known: ScheduleStatus,
    parts: Sequence[Workload],
    now: float,
    wanted: DesiredState,
) -> ScheduleStatus:
    """Handle all times up to now; runs to start and stop are added to ``wanted``."""
    known = _recorded(spec, known, parts)
    if known.next_at is None or known.next_at > now:
        return known
    count, last = cron.due(spec.cron, spec.time_zone, known.next_at, now)
    if last is None:
        return _decided(spec, known, 0, now)
    facts = _decided(spec, known, count - 1, last)
    if now - last > spec.starting_deadline_seconds:
        return msgspec.structs.replace(facts, missed=facts.missed + 1)
    active = [part for part in parts if not at_rest(part) and not part.spec.delete]
    if active and spec.overlap == "skip":
        return msgspec.structs.replace(facts, skipped=facts.skipped + 1)
    if spec.overlap == "replace":
        wanted.deleted += [part.meta.uid for part in active]
    number = 1 + max([known.runs, *(part.spec.part for part in parts)])
    name = run_name(owner.meta.name, number)
    labels = {**owner.meta.labels, DUE_LABEL: _stamp(last)}
    wanted.created.append(NewPart(number, name, run_spec(owner.spec, spec), labels))
    return _ran(facts, number, name, last)


def _recorded(
    spec: ScheduleSpec, known: ScheduleStatus, parts: Sequence[Workload]
) -> ScheduleStatus:
    """The status with the runs that an unrecorded pass has already created."""
    for part in parts:
        at = float(part.meta.labels.get(DUE_LABEL) or 0)
        if known.next_at is not None and at >= known.next_at:
            count, _ = cron.due(spec.cron, spec.time_zone, known.next_at, at)
            known = _ran(_decided(spec, known, count - 1, at), part.spec.part, part.meta.name, at)
    return known


def _decided(
    spec: ScheduleSpec, known: ScheduleStatus, missed: int, until: float
) -> ScheduleStatus:
    """The status once all times up to this one are decided about; so many of them were missed."""
    next_at = cron.after(spec.cron, spec.time_zone, until)
    return msgspec.structs.replace(known, next_at=next_at, missed=known.missed + max(missed, 0))


def _ran(facts: ScheduleStatus, number: int, name: str, at: float) -> ScheduleStatus:
    return msgspec.structs.replace(facts, runs=number, last_run=name, last_at=at)


def run_spec(owner: WorkloadSpec, spec: ScheduleSpec) -> WorkloadSpec:
    """The specification of each run: the schedule's as work of the runs' kind."""
    return msgspec.structs.replace(
        owner, kind=spec.runs, schedule=None, suspend=False, delete=False, resumes=0
    )


def run_name(schedule: str, number: int) -> str:
    """The name ``NAME-7`` of a run; a long name is shortened to stay valid."""
    end = f"-{number}"
    return schedule[: LONGEST_NAME - len(end)].rstrip("-") + end


def _stamp(at: float) -> str:
    return f"{at:.0f}"


def _surplus(spec: ScheduleSpec, parts: Sequence[Workload]) -> list[str]:
    """Ended runs beyond the number to keep, the oldest first."""
    ended = [part for part in parts if at_rest(part) and not part.spec.delete]
    return [part.meta.uid for part in ended[: max(len(ended) - spec.keep, 0)]]
