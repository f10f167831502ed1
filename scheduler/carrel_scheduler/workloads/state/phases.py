"""The life of a workload: one table of transitions, the only way its phase changes.

=============  ======================================  ==================  =====================
phase          meaning                                 holds resources     who moves it on
=============  ======================================  ==================  =====================
``pending``    waits for capacity or its back-off      no                  the plan
``starting``   has a place, recorded; process coming   yes                 the engine
``running``    its tasks run                           yes                 engine, plan, policy
``preempting`` is evicted, saves its work              yes, until ended    the engine
``stopping``   is stopped by its owner or a limit      yes, until ended    the engine
``succeeded``  ended by itself with exit code 0        no                  nobody (end)
``failed``     used up its back-off limit              no                  nobody (end)
``stopped``    suspended, limit struck, or a          no                  its owner (resume)
               workspace that ended or gave
               way; with a reason
=============  ======================================  ==================  =====================
"""

from typing import Final

from carrel_schema.objects import Phase, WorkloadStatus

TRANSITIONS: Final[dict[Phase, frozenset[Phase]]] = {
    "pending": frozenset({"starting", "stopped", "failed"}),
    "starting": frozenset(
        {"running", "pending", "preempting", "stopping", "stopped", "succeeded", "failed"}
    ),
    "running": frozenset(
        {"starting", "preempting", "stopping", "stopped", "succeeded", "failed", "pending"}
    ),
    "preempting": frozenset({"pending", "stopping", "stopped", "succeeded", "failed"}),
    "stopping": frozenset({"stopped", "succeeded", "failed"}),
    "succeeded": frozenset(),
    "failed": frozenset(),
    "stopped": frozenset({"pending"}),
}
HOLDING: Final[frozenset[Phase]] = frozenset({"starting", "running", "preempting", "stopping"})
FINAL: Final[frozenset[Phase]] = frozenset({"succeeded", "failed"})
AT_REST: Final[frozenset[Phase]] = FINAL | {"stopped"}

TOKEN_SECONDS: Final = 60.0
"""Seconds after its end in which a task's last report may come in."""


def has_token(status: WorkloadStatus, now: float) -> bool:
    """Whether the token of a workload's tasks is good: while one is at work, and shortly after."""
    if status.phase in HOLDING:
        return True
    return status.ended_at is not None and now < status.ended_at + TOKEN_SECONDS


class IllegalTransition(Exception):  # noqa: N818
    """A change of phase that is not in the table; the message has the workload's history."""

    def __init__(self, uid: str, old: Phase, new: Phase) -> None:
        super().__init__(f"workload {uid}: {old} -> {new} is not a transition")
        self.uid, self.old, self.new = uid, old, new
