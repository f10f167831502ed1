"""Why somebody has to give way: the same structure as why somebody waits."""

from typing import TYPE_CHECKING

from carrel_scheduler.core.queues.rules import NO_BOUND, RESOURCES
from carrel_scheduler.core.queues.standings import RESOURCE_NAMES
from carrel_scheduler.core.reasons import Reason, ReasonClass

if TYPE_CHECKING:
    from carrel_scheduler.core.cycle.cycle import Cycle
    from carrel_scheduler.core.cycle.moves import Cause


def eviction_reason(cycle: "Cycle", cause: "Cause") -> Reason:
    """The reason behind a cause.

    ``bound`` is the quota of the claimer's queue when it claims within it, 0 when it claims more.
    """
    claimer = cause.claimer
    if claimer is None:
        return Reason(ReasonClass.EVICTED, cause.token, nodes=cause.nodes)
    demand = claimer.shape.first
    asked = next((r for r in RESOURCES if demand[r]), 0)
    quota = cycle.standings.quota[claimer.queue][asked]
    within = cause.within_quota and quota < NO_BOUND
    return Reason(
        ReasonClass.EVICTED,
        cause.token,
        resource=RESOURCE_NAMES[asked],
        requested=demand[asked],
        bound=quota if within else 0,
        project=claimer.spec.project,
        workload=claimer.spec.name,
        workload_uid=claimer.spec.uid,
    )
