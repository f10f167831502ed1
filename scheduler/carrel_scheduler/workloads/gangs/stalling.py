"""Work that stands still: it runs, none of its GPUs works, and it reports nothing.

A collective that waits for a member which never comes looks like this: every process lives, so
nothing ends. The owner is told, or the workers start again together, which counts as a failure of
the class ``stalled``, so that a program that always hangs comes to an end. The cluster's rule is
for gangs; a job that has a rule of its own is looked at whatever its number of tasks. GPUs that are
not measured count as working (``state.gpu_use``): then nothing is said.
"""

from dataclasses import dataclass
from typing import Final, Literal

from carrel_scheduler.workloads.gangs import membership
from carrel_scheduler.workloads.state import failure_reasons, gpu_use, shape
from carrel_scheduler.workloads.state.cache import CachedWorkload
from carrel_scheduler.workloads.state.pass_changes import PassChanges
from carrel_schema.kinds import KINDS
from carrel_schema.objects import WorkloadSpec

DEFAULT_SECONDS: Final = 1800.0
Reaction = Literal["tell", "restart"]


@dataclass(frozen=True, slots=True)
class StallRule:
    """The condition under which a gang counts as stalled, and the reaction to it.

    Attributes:
        after_s: so long without GPU work and reports; 0: it is not looked for.
        reaction: ``tell`` the owner, or ``restart`` the workers together.
    """

    after_s: float = DEFAULT_SECONDS
    reaction: Reaction = "tell"


NEVER: Final = StallRule(after_s=0.0)


def check(changes: PassChanges, entry: CachedWorkload, rule: StallRule) -> None:
    """Check a workload for a stall, after its GPUs were sampled.

    Args:
        changes: of this pass.
        entry: any work that holds resources.
        rule: the cluster's.
    """
    rule = rule_of(entry.workload.spec, rule)
    status = entry.workload.status
    told = status.reason is not None and status.reason.token == failure_reasons.STALLED
    still = _still_for(entry, changes.now)
    if not rule.after_s or still < rule.after_s:
        if told:
            status.reason = None
            changes.mark(entry)
        return
    if rule.reaction == "restart":  # also where the rule was changed after it was told
        membership.lose(changes, entry, failure_reasons.stood_still(still), stalled=True)
        return
    if told:
        return
    status.reason = failure_reasons.stalled(still)
    changes.row(entry, status.phase, status.phase, status.reason)
    changes.mark(entry)


def rule_of(spec: WorkloadSpec, cluster: StallRule) -> StallRule:
    """The rule of a workload: its own; without one a gang has that of the cluster."""
    own = spec.stall_after_seconds is not None or spec.restart_when_stalled is not None
    if not KINDS[spec.kind].gang or not (own or shape.is_gang(spec)):
        return NEVER
    if not own:
        return cluster
    reaction = cluster.reaction
    if spec.restart_when_stalled is not None:
        reaction = "restart" if spec.restart_when_stalled else "tell"
    after = spec.stall_after_seconds or cluster.after_s or DEFAULT_SECONDS
    return StallRule(after, reaction)


def _still_for(entry: CachedWorkload, now: float) -> float:
    """The seconds for which the workload has been stalled."""
    status = entry.workload.status
    runs = status.phase == "running" and not entry.ending and not entry.leaving
    if not runs or not gpu_use.holds_gpus(entry):
        return 0.0
    if gpu_use.active(entry, now):
        return 0.0
    began = status.started_at if status.started_at is not None else now
    return max(0.0, now - max(began, entry.gpu_active_at, entry.reported_at))
