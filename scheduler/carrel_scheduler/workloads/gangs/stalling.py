"""Gangs that stand still: they run, none of their GPUs works, and they report nothing.

A collective that waits for a member which never comes looks like this: every worker lives, so
nothing ends. The owner is told; by the admin's choice the workers start again together, which
counts as a failure, so that a program that always hangs comes to an end. GPUs that are not measured
count as working (``state.gpu_use``): then nothing is said.
"""

from dataclasses import dataclass
from typing import Final, Literal

from carrel_scheduler.workloads.gangs import membership
from carrel_scheduler.workloads.state import gpu_use, reasons, shape
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.pass_changes import PassChanges

DEFAULT_SECONDS: Final = 1800.0
Reaction = Literal["tell", "restart"]


@dataclass(frozen=True, slots=True)
class StallRule:
    """What counts as standing still, and what is done.

    Attributes:
        after_s: so long without GPU work and reports; 0: it is not looked for.
        reaction: ``tell`` the owner, or ``restart`` the workers together.
    """

    after_s: float = DEFAULT_SECONDS
    reaction: Reaction = "tell"


def check(changes: PassChanges, entry: CachedWorkload, rule: StallRule) -> None:
    """Judge a gang after a look at its GPUs."""
    status = entry.workload.status
    told = status.reason is not None and status.reason.token == reasons.STALLED
    still = _still_for(entry, changes.now)
    if not rule.after_s or still < rule.after_s:
        if told:
            status.reason = None
            changes.mark(entry)
        return
    if told:
        return
    if rule.reaction == "restart":
        membership.lose(changes, entry, reasons.stood_still(still))
        return
    status.reason = reasons.stalled(still)
    changes.row(entry, status.phase, status.phase, status.reason)
    changes.mark(entry)


def _still_for(entry: CachedWorkload, now: float) -> float:
    """For how many seconds it has stood still."""
    status = entry.workload.status
    runs = status.phase == "running" and not entry.ending and not entry.leaving
    if not runs or not shape.is_gang(entry.workload.spec) or not gpu_use.holds_gpus(entry):
        return 0.0
    if gpu_use.active(entry, now):
        return 0.0
    began = status.started_at if status.started_at is not None else now
    return max(0.0, now - max(began, entry.gpu_active_at, entry.reported_at))
