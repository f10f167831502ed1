"""What the present state of a workload means for somebody who waits for their workspace.

The scheduler's reason decides: room that is being freed for it is worth waiting for, everything
else is an answer that one should get at once instead of a page that never ends.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from carrel.models import Reason, Workload

_STARTING: Final = "Starting"
_WAITS_FOR_ROOM: Final = "WaitsForRoom"
_NEVER_FITS: Final = "NeverFits"
_QUOTA_TOKENS: Final = frozenset(
    {"QuotaUsed", "OverLimit", "NonPreemptibleBeyondQuota", "OverQuotaOff"}
)


class Outcome(StrEnum):
    """What to do about it."""

    WAIT = "wait"
    PLACED = "placed"
    UP = "up"
    REFUSED = "refused"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An outcome with the words for it.

    Attributes:
        percent: how far the start is, for the progress bar.
        because: label of a refusal: ``quota``, ``capacity``, ``never``, ``stopped`` or ``exited``.
    """

    outcome: Outcome
    percent: int
    sentence: str
    help: str = ""
    because: str = ""


def judge(workload: Workload) -> Verdict:
    """What the workload's phase and reason mean for its owner, who waits."""
    status = workload.status
    if status.phase == "running":
        return Verdict(Outcome.UP, 60, "Your place is ready; JupyterLab is starting.")
    if status.phase == "starting":
        return Verdict(Outcome.PLACED, 50, "Your place is ready; the workspace is starting.")
    if status.phase == "pending":
        return _waiting(status.reason)
    if workload.at_rest or status.phase in ("stopping", "preempting"):
        return _ended(workload)
    return Verdict(Outcome.WAIT, 20, f"The workspace is {status.phase}.")


def _waiting(reason: Reason | None) -> Verdict:
    if reason is None:
        return Verdict(Outcome.WAIT, 10, "Asking the scheduler for a place.")
    if reason.cls == "starting" or reason.token == _STARTING:
        return Verdict(Outcome.WAIT, 40, reason.sentence or "A place was found.", reason.help)
    if is_promised(reason):
        return Verdict(Outcome.WAIT, 25, reason.sentence, reason.help)
    if reason.cls == "never" or reason.token == _NEVER_FITS:
        because = "never"
    elif reason.token in _QUOTA_TOKENS:
        because = "quota"
    else:
        because = "capacity"
    return Verdict(Outcome.REFUSED, 100, reason.sentence, reason.help, because)


def is_promised(reason: Reason) -> bool:
    """Whether room is being freed for this very workload, so that waiting is worth it."""
    if reason.data.get("nominated"):
        return True
    holders = reason.data.get("holders") or ()
    return reason.token == _WAITS_FOR_ROOM and any(_gives_way(holder) for holder in holders)


def _gives_way(holder: Any) -> bool:
    return isinstance(holder, Mapping) and bool(holder.get("giving_way"))


def _ended(workload: Workload) -> Verdict:
    reason = workload.status.reason
    if reason is not None and reason.sentence:
        because = "exited" if workload.status.phase in ("failed", "succeeded") else "stopped"
        return Verdict(Outcome.ENDED, 100, reason.sentence, reason.help, because)
    return Verdict(Outcome.ENDED, 100, "The workspace ended before it was ready.", "", "exited")
