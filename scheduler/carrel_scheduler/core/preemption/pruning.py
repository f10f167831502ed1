"""Those who left their queue for the sake of a claim, and of whom it has no need after all, stay.

How much has to leave is known only once the room is found: victims may be of the own queue as well.
Who stays holds the room on which it runs; it must not have been given to anybody meanwhile.
"""

from collections.abc import Sequence
from dataclasses import replace

from carrel_scheduler.core.cycle.moves import TAKEN, ManyEvicted, Move
from carrel_scheduler.core.layers import Footprint
from carrel_scheduler.core.nodes.free_capacity import FreeCapacity
from carrel_scheduler.core.preemption.legality import Budgets
from carrel_scheduler.core.preemption.own_queue import OwnSide
from carrel_scheduler.core.preemption.victim_order import Share

Overdrawn = list[int]
"""How far the places of a share are promised beyond what there will be, see ``Room.overdrawn``."""


def promised_beyond(own: OwnSide, leaving: Sequence[Share]) -> list[Overdrawn]:
    """What of the places of each share was promised to others already, before they leave."""
    return [own.cycle.free_capacity.overdrawn(_places(own, share)) for share in leaving]


def others_lose(own: OwnSide, mark: int) -> bool:
    """Whether anything was taken of another queue since ``mark``: only that needs rights."""
    queue = own.preemptor.queue
    for move in own.cycle.moves.log[mark:]:
        if isinstance(move, ManyEvicted):
            if any(leaf != queue for leaf, _ in move.sums):
                return True
        elif isinstance(move, Move) and move.kind in TAKEN and move.job.queue != queue:
            return True
    return False


def spare(
    own: OwnSide, leaving: Sequence[Share], before: Sequence[Overdrawn], rights: Budgets | None
) -> None:
    """Those who left and whom neither the claim nor the room needs stay, the last taken first.

    Of a job that gave in several steps the earlier ones stay only if the later ones do: what runs
    on must be whole.

    Args:
        own: who claims.
        leaving: who left.
        before: their ``promised_beyond``.
        rights: those that were used; ``None`` where nothing was taken of other queues.
    """
    needed = set[int]()
    for share, was in zip(reversed(leaving), reversed(before), strict=True):
        slot = share.job.slot
        if slot in needed or not _stays(own, share, was, rights):
            needed.add(slot)


def _stays(own: OwnSide, share: Share, before: Overdrawn, rights: Budgets | None) -> bool:
    """Hold its own room for what left, if it may."""
    cycle, job, gone = own.cycle, share.job, own.gone
    less = (gone[0] - share.amounts[0], gone[1] - share.amounts[1], gone[2] - share.amounts[2])
    places = _places(own, share)
    may = cycle.over_limit(job, share.indices) is None and (
        rights is None or own.gives(less, rights)
    )
    if not may or len(places) < len(share.indices) or not _has_slots(cycle.free_capacity, places):
        return False
    mark = cycle.moves.mark()
    for index, place in zip(share.indices, places, strict=True):
        cycle.moves.reserve(job, index, place, fixed=False)
    after = cycle.free_capacity.overdrawn(places)
    if any(now > then for now, then in zip(after, before, strict=True)):
        cycle.moves.rollback(mark)
        return False
    return True


def _places(own: OwnSide, share: Share) -> list[Footprint]:
    """Where those of its tasks lie that run."""
    rows = share.job.rows
    tasks = own.cycle.state.tasks
    return [tasks.footprint(rows[index]) for index in share.indices if index in rows]


def _has_slots(room: FreeCapacity, places: Sequence[Footprint]) -> bool:
    """Whether their nodes take work, and their memory slots are nobody's."""
    bare = [replace(place, share=0, host=()) for place in places]
    return room.has(bare, soon=True)
