"""What of other queues' work a claim may take, share by share."""

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.preemption.legality import Claim
from carrel_scheduler.core.preemption.minimum_runtimes import reclaim_protects_s
from carrel_scheduler.core.preemption.victim_order import Share
from carrel_scheduler.core.work.jobs import Job


def legal(claim: Claim, share: Share) -> bool:
    """Whether a share may be taken now.

    What this cycle gave a queue may be taken back; it makes no victim of what ran before.
    """
    judged = claim if share.job.rows else claim.of_given()
    return judged.legal(share.job.queue, share.amounts)


def wholly(claim: Claim, share: Share) -> bool:
    """Whether all of a share lies beyond what its queue keeps."""
    return claim.covers(share.job.queue, share.amounts)


def is_protected(cycle: Cycle, preemptor: Job, victim: Job) -> bool:
    """Whether a workload has not run long enough to give way to one of another queue."""
    least = reclaim_protects_s(
        cycle.queue_usage.table, preemptor.queue, victim.queue, cycle.settings.min_runtime_s
    )
    return victim.started + least > cycle.now
