"""Bound B2: queues whose victims lie on so many places that the claim cannot do without them."""

import numpy as np

from carrel_scheduler.core.preemption.search.bounds import by_one_queue
from carrel_scheduler.core.preemption.search.claims import Impossible, Ints
from carrel_scheduler.core.preemption.search.items import Items
from carrel_scheduler.core.preemption.search.purse import Caps, Purse


def scarce_queue(items: Items, need: int, purse: Purse, caps: Caps) -> Impossible | None:
    """B2 for the binding queues that have victims on too many items to do without them."""
    leaf = purse.queue.take(items.unit)
    owner = np.repeat(np.arange(len(items.node)), np.diff(items.start))
    above = np.arange(purse.tree.size)
    while (above >= 0).any():
        asked = np.zeros(purse.tree.size, np.bool_)
        asked[above[above >= 0]] = True
        asked &= caps.sole
        count = np.bincount(above.take(leaf)[above.take(leaf) >= 0], minlength=len(asked))
        asked &= len(items.node) - count < need
        queues = np.flatnonzero(asked)
        if len(queues):
            no = _asked(items, need, (above.take(leaf), owner), queues, purse, caps)
            if no is not None:
                return no
        above = np.where(above >= 0, purse.tree.parent.take(above, mode="clip"), -1)
    return None


def _asked(
    items: Items, need: int, losses: tuple[Ints, Ints], queues: Ints, purse: Purse, caps: Caps
) -> Impossible | None:
    """B2 for ``queues``; ``losses`` are the queue and the item of every loss."""
    queue, owner = losses
    size = len(items.node)
    line = np.full(purse.tree.size + 1, -1)
    line[queues] = np.arange(len(queues))
    loss = np.zeros((len(queues), size), np.int64)
    for r in set(caps.resource[queues].tolist()):
        mine = np.flatnonzero((line.take(queue) >= 0) & (caps.resource.take(queue) == r))
        spot = line.take(queue.take(mine)) * size + owner.take(mine)
        amount = purse.amounts[r].take(items.unit.take(mine))
        loss += (
            np.bincount(spot, weights=amount, minlength=loss.size)
            .astype(np.int64)
            .reshape(loss.shape)
        )
    most = by_one_queue(loss, caps.cap[queues])
    least = int(np.argmin(most))
    if most[least] >= need:
        return None
    return Impossible("queue", int(most[least]), need, int(queues[least]))
