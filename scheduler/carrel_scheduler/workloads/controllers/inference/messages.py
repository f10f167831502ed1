"""What an endpoint says of itself: what happened, then what helps."""

from typing import Final

from carrel_scheduler.workloads.lifecycle.reasons import duration, how_it_ended
from carrel_schema.objects import ReasonInfo, Workload

_LOG: Final = "Read the log of `{name}`, the last replica that was tried, for the cause"


def ended(part: Workload) -> str:
    """How a replica ended, in a few words."""
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
    """What helps a server that runs and is not heard in a pod of its own."""
    info = part.status.tasks[0] if part.status.tasks else None
    if late is None or info is None or not info.address:
        return ""
    return "Have it listen on all addresses (`CARREL_HOST`), not on 127.0.0.1. "


def starting(number: int) -> ReasonInfo:
    """Its first servers are on their way."""
    what = "Its replica is" if number == 1 else f"Its {number} replicas are"
    return ReasonInfo(
        token="Starting",  # noqa: S106 - a reason's name
        cls="starting",
        sentence=f"{what} starting.",
    )


def waits_for_room(part: Workload) -> ReasonInfo:
    """An update needs room for one replica more."""
    why = f" {part.status.reason.sentence}" if part.status.reason else ""
    return ReasonInfo(
        token="UpdateWaits",  # noqa: S106 - a reason's name
        cls="not-now",
        sentence=f"The update waits for room for one more replica.{why}",
        help="Free some of the project's guaranteed quota, or suspend and resume the endpoint: "
        "it then starts with the new specification and does not answer in between.",
    )
