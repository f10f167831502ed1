"""The status of an endpoint after a pass: phase, reason, counts, where requests go."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from carrel_scheduler.workloads.controllers.contract import moved
from carrel_scheduler.workloads.controllers.inference.plan import Situation, Steps
from carrel_scheduler.workloads.state.failure_reasons import how_it_ended
from carrel_scheduler.workloads.state.reasons import duration, suspended
from carrel_schema.objects import ReasonInfo, Workload, WorkloadStatus
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
    """The endpoint's status after the steps of a pass.

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
        reason = gave_up(part, steps.failures, late=late, serving=bool(serving))
        status = moved(shown, "running" if serving else "stopped", now, reason)
    elif serving or steps.wanted == 0:
        stuck = situation.replicas and waiting and len(serving) >= steps.wanted
        first = next((part for part in parts if stuck and part.meta.uid == waiting[0].uid), None)
        status = moved(shown, "running", now, waits_for_room(first) if first else None)
    elif failing is not None and not coming:
        part, late = failing
        reason = failed(part, steps.failures, situation.most_failures, late=late)
        status = moved(shown, "pending", now, reason)
    elif waiting and not coming:
        first = next(part for part in parts if part.meta.uid == waiting[0].uid)
        status = moved(shown, "pending", now, first.status.reason)
    else:
        begun = any(one.state == "starting" for one in situation.replicas)
        status = moved(shown, "starting" if begun else "pending", now, starting(coming))
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


_LOG: Final = "Read the log of `{name}`, the last replica that was tried, for the cause"


def ended(part: Workload) -> str:
    """The end of a replica, as a phrase."""
    task = part.status.tasks[0] if part.status.tasks else None
    if task is None:
        return "it never started"
    return how_it_ended(task.exit_code, task.signal, task.message)


def failed(part: Workload, failures: int, limit: int, *, late: float | None) -> ReasonInfo:
    """Replicas of it fail, and others follow; ``late``: the seconds it had to get ready."""
    return ReasonInfo(
        token="ReplicaNeverReady" if late is not None else "ReplicaFailed",
        cls="held-back",
        sentence=(
            f"Replica {part.meta.name} {_how(part, late)}, {failures} of at most "
            f"{limit + 1} times one after the other; another one follows."
        ),
        help=f"{_listening(part, late)}{_LOG.format(name=part.meta.name)}.",
        data={"failures": failures, "backoff_limit": limit, "replica": part.meta.name},
    )


def gave_up(part: Workload, failures: int, *, late: float | None, serving: bool) -> ReasonInfo:
    """Too many replicas failed: it is stopped, or goes on with what it had before."""
    goes_on = "it goes on with the revision before" if serving else "it is stopped"
    return ReasonInfo(
        token="NeverReady" if late is not None else "ReplicasFailed",
        cls="stopped",
        sentence=(
            f"{failures} replicas in a row failed, so {goes_on}: "
            f"{part.meta.name} {_how(part, late)}."
        ),
        help=f"{_listening(part, late)}{_LOG.format(name=part.meta.name)}, change the endpoint, "
        "and resume it.",
        data={"failures": failures, "replica": part.meta.name},
    )


def _how(part: Workload, late: float | None) -> str:
    if late is None:
        return f"ended ({ended(part)})"
    asked = part.spec.routes[0].port if part.spec.routes else 0
    info = part.status.tasks[0] if part.status.tasks else None
    port = next(iter(info.ports.values()), asked) if info else asked
    return f"did not answer at its port {port} within {duration(late)}"


def _listening(part: Workload, late: float | None) -> str:
    """The advice for a server that runs in a pod of its own and cannot be reached."""
    info = part.status.tasks[0] if part.status.tasks else None
    if late is None or info is None or not info.address:
        return ""
    return "Have it listen on all addresses (`CARREL_HOST`), not on 127.0.0.1. "


def starting(number: int) -> ReasonInfo:
    """The reason of an endpoint whose first replicas are starting."""
    what = "Its replica is" if number == 1 else f"Its {number} replicas are"
    return ReasonInfo(
        token="Starting",  # noqa: S106 - a reason's name
        cls="starting",
        sentence=f"{what} starting.",
    )


def waits_for_room(part: Workload) -> ReasonInfo:
    """An update needs capacity for one replica more."""
    why = f" {part.status.reason.sentence}" if part.status.reason else ""
    return ReasonInfo(
        token="UpdateWaits",  # noqa: S106 - a reason's name
        cls="not-now",
        sentence=f"The update waits for capacity for one more replica.{why}",
        help="Free some of the project's guaranteed quota, or suspend and resume the endpoint: "
        "it then starts with the new specification and does not answer in between.",
    )
