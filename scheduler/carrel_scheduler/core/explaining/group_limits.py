"""Work that a limit in a group of nodes keeps from starting: for now, or for ever.

And, for now, work that may not be stopped where what is left of a group is guaranteed to others.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from carrel_scheduler.core.capacity.views import GPU, CapacityView, CapacityViews
from carrel_scheduler.core.cycle.group_usage import GroupUsage, GroupViolation
from carrel_scheduler.core.explaining.impossible import all_nodes, needs
from carrel_scheduler.core.queues.usage import RESOURCE_NAMES
from carrel_scheduler.core.reasons import Holder, Reason, ReasonClass, Token
from carrel_scheduler.core.work.shapes import Shape

if TYPE_CHECKING:
    from carrel_scheduler.core.columns import Columns

Barred = tuple[GroupViolation, int]
"""The limit, and thousandths of GPUs that are asked for."""


def barred(
    usage: GroupUsage,
    views: CapacityViews,
    view: CapacityView,
    queue: int,
    asked: Mapping[int, int],
    *,
    fixed: bool = False,
) -> Barred | None:
    """The bound without which tasks would fit the nodes as a view shows them, or ``None``.

    Args:
        usage: what queues hold in groups of nodes.
        views: of the nodes.
        view: which of them.
        queue: the slot of the queue that asks.
        asked: class -> how many tasks of it.
        fixed: whether they may not be stopped.
    """
    for cls, need in asked.items():
        gpu = views.asked(cls).get(GPU, 0)
        if not gpu or views.total(view, cls) < need:
            continue
        counts = views.parts(view, cls).counts()
        if usage.fitting(queue, counts, gpu, fixed=fixed) < need:
            found = usage.violation(queue, counts, gpu, fixed=fixed)
            return None if found is None else (found, need * gpu)
    return None


def never(
    state: "Columns", queue: int, shape: Shape, views: CapacityViews | None = None
) -> Reason | None:
    """The limit that could never admit a workload, even if its queue held nothing else.

    ``views``: where views of empty nodes are kept.
    """
    table = state.queues.table
    if not any(table.group_limits[slot] for slot in table.path[queue]):
        return None
    asked = needs(shape, shape.first_step)
    views = views or all_nodes(state)
    found = barred(GroupUsage.empty(state), views, CapacityView.WHOLE, queue, asked)
    return None if found is None else reason_of(state, ReasonClass.NEVER, found)


def reason_of(
    state: "Columns", cls: ReasonClass, found: Barred, holders: tuple[Holder, ...] = ()
) -> Reason:
    """The reason for an exceeded limit in a node group."""
    limit, asked = found
    return Reason(
        cls,
        Token.NON_PREEMPTIBLE_BEYOND_QUOTA if limit.by_quotas else Token.OVER_GROUP_LIMIT,
        resource=RESOURCE_NAMES[GPU],
        requested=asked,
        short=max(0, limit.held + asked - limit.bound),
        bound=limit.bound,
        project=state.queues.table.names[limit.slot],
        holders=holders,
        detail=limit.group,
    )
