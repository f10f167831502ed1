"""What an endpoint shows of itself after a look: phase, reason, counts, where requests go."""

from collections.abc import Mapping, Sequence

import msgspec

from carrel_scheduler.workloads.controllers.inference import messages as words
from carrel_scheduler.workloads.controllers.inference.plan import Situation, Steps
from carrel_scheduler.workloads.controllers.parts import moved
from carrel_scheduler.workloads.lifecycle.reasons import suspended
from carrel_schema.objects import Workload, WorkloadStatus
from carrel_schema.sections import EndpointStatus, Target


def status_of(
    owner: Workload,
    before: WorkloadStatus,
    parts: Sequence[Workload],
    situation: Situation,
    steps: Steps,
    targets: Mapping[str, Target],
    now: float,
) -> WorkloadStatus:
    """The status that follows.

    Args:
        owner: the endpoint; ``before`` is its status as this look found it.
        before: see there.
        parts: its replicas.
        situation: what was decided by.
        steps: what was decided.
        targets: where requests go from now on, by uid.
        now: epoch seconds.
    """
    serving = [one for one in targets.values() if one.state == "ready"]
    waiting = [one for one in situation.replicas if one.state == "waiting"]
    coming = sum(one.state == "starting" for one in situation.replicas) + steps.create
    shown = msgspec.structs.replace(owner, status=before)
    failing = _last_tried(parts, steps, situation) if steps.failures else None
    if situation.rest:
        reason = suspended(owner.spec) if owner.spec.suspend else before.reason
        status = moved(shown, "stopped", now, reason)
    elif steps.gave_up and failing is not None:
        part, late = failing
        reason = words.gave_up(part, steps.failures, late=late, serving=bool(serving))
        status = moved(shown, "running" if serving else "stopped", now, reason)
    elif serving or steps.wanted == 0:
        stuck = situation.replicas and waiting and len(serving) >= steps.wanted
        first = next((part for part in parts if stuck and part.meta.uid == waiting[0].uid), None)
        status = moved(shown, "running", now, words.waits_for_room(first) if first else None)
    elif failing is not None and not coming:
        part, late = failing
        reason = words.failed(part, steps.failures, situation.most_failures, late=late)
        status = moved(shown, "pending", now, reason)
    elif waiting and not coming:
        first = next(part for part in parts if part.meta.uid == waiting[0].uid)
        status = moved(shown, "pending", now, first.status.reason)
    else:
        begun = any(one.state == "starting" for one in situation.replicas)
        status = moved(shown, "starting" if begun else "pending", now, words.starting(coming))
    status.failures, status.not_before = steps.failures, steps.not_before
    status.endpoint = _endpoint(before, parts, situation, steps, targets, coming)
    return status


def _last_tried(
    parts: Sequence[Workload], steps: Steps, situation: Situation
) -> tuple[Workload, float | None] | None:
    """The replica that failed last, and the time it had if it never got ready."""
    numbers = [part for part in parts if part.spec.part <= steps.counted]
    if not numbers:
        return None
    part = max(numbers, key=lambda one: one.spec.part)
    late = part.spec.part in steps.late or part.spec.suspend
    return part, situation.spec.startup_seconds if late else None


def _endpoint(
    before: WorkloadStatus,
    parts: Sequence[Workload],
    situation: Situation,
    steps: Steps,
    targets: Mapping[str, Target],
    coming: int,
) -> EndpointStatus:
    known = before.endpoint or EndpointStatus()
    ready = [one for one in targets.values() if one.state == "ready"]
    revisions = {one.revision for one in ready}
    made = max([known.made, *(part.spec.part for part in parts)])
    others = [
        one
        for one in situation.replicas
        if one.revision != situation.spec.revision and one.state in ("ready", "starting")
    ]
    return msgspec.structs.replace(
        known,
        wanted=max(steps.wanted, 0),
        ready=len(ready),
        starting=coming,
        revision=min(revisions, default=situation.spec.revision),
        updating=bool(others) and not situation.rest,
        targets=tuple(sorted(targets.values(), key=lambda one: one.uid)),
        made=made + steps.create,
        counted=steps.counted,
    )
