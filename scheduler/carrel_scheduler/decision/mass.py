"""Making room when many may give way: the search over arrays instead of one by one.

Only for plain work (equal tasks without a level, whole devices or one share), and only where the
books of ``clearing`` say all there is to say; ``None`` means that this is not such a case.
"""

import numpy as np

from carrel_scheduler.decision.claims import Claim
from carrel_scheduler.decision.classes import Form
from carrel_scheduler.decision.clearing.board import lay_out
from carrel_scheduler.decision.clearing.claims import Budgets, Cleared, Impossible
from carrel_scheduler.decision.clearing.claims import Claim as Wish
from carrel_scheduler.decision.clearing.clear import clear
from carrel_scheduler.decision.cycle import Cycle
from carrel_scheduler.decision.jobs import Job
from carrel_scheduler.decision.layers import Bools, Counts
from carrel_scheduler.decision.moves import Cause
from carrel_scheduler.decision.requests import HOST
from carrel_scheduler.decision.resources import MILLI
from carrel_scheduler.decision.rules import NO_BOUND
from carrel_scheduler.decision.victim_table import VictimTable, ground_of, victims_of

MANY = 200
"""From so many tasks that may be stopped on."""


def wish_of(cycle: Cycle, job: Job, step: tuple[int, ...]) -> Wish | None:
    """The step as ``clearing`` understands it, or ``None``."""
    shape, classes = job.shape, cycle.state.classes
    kind = classes.kinds[shape.cls]
    if not shape.plain and not (shape.apart == HOST and shape.alike):
        return None
    if kind.form not in (Form.NONE, Form.WHOLE, Form.SHARE) or len(classes.host(shape.cls)) > 2:
        return None
    width, size, cpu, memory = classes.clearing_kind(shape.cls)
    return Wish(len(step), width, size, cpu, memory, most_per_node=1 if shape.apart else 0)


def budgets_of(cycle: Cycle, claim: Claim) -> Budgets | None:
    """What may be taken, or ``None`` where a bound beyond it must be heeded too."""
    found = claim.budgets()
    if claim.needs() or bool((found.most < NO_BOUND).any()):
        return None
    parent = np.array(cycle.standings.table.parent, np.int64)
    return Budgets(parent, found.excess, found.excess[:, 0] >= NO_BOUND)


def open_budgets(cycle: Cycle) -> Budgets:
    """No bound at all."""
    parent = np.array(cycle.standings.table.parent, np.int64)
    queues = len(parent)
    return Budgets(parent, np.zeros((queues, 3), np.int64), np.ones(queues, np.bool_))


def make_room(
    cycle: Cycle, job: Job, wish: Wish, table: VictimTable, budgets: Budgets, cause: Cause
) -> bool | None:
    """Stop victims and hold their room for a plain step.

    Returns:
        Whether it was possible; ``None`` when this is for the search one by one to say.
    """
    ground = ground_of(cycle, job.shape.cls)
    board = lay_out(ground, table.costed(), budgets)
    answer = clear(wish, board)
    if isinstance(answer, Cleared):
        return _carry_out(cycle, job, table, answer, cause)
    if isinstance(answer, Impossible) and not table.left_out:
        return False
    return None if table.left_out else False


def _carry_out(
    cycle: Cycle, job: Job, table: VictimTable, answer: Cleared, cause: Cause
) -> bool | None:
    moves = cycle.moves
    mark = moves.mark()
    if len(answer.units):
        moves.stop_many(table.rows_of(answer.units), cause)
    step = job.shape.first_step
    if cycle.barrier(job, step) is None and _hold(cycle, job, step, answer.nodes):
        return True
    moves.rollback(mark)
    return None


def _hold(cycle: Cycle, job: Job, step: tuple[int, ...], nodes: Counts) -> bool:
    cls, moves = job.shape.cls, cycle.moves
    kind = cycle.state.classes.kinds[cls]
    fixed = cycle.is_fixed(job)
    if kind.form is Form.WHOLE and not cycle.state.nodes.mig.any():
        masks = _whole_nodes(cycle, nodes, kind.amount)
        if masks is not None:
            moves.hold_many(job, step, nodes, masks, fixed=fixed)
            return True
    for index, node in zip(step, nodes.tolist(), strict=True):
        place = cycle.footprint(cls, node, soon=True)
        if place is None:
            return False
        moves.hold(job, index, place, fixed=fixed)
    return True


def _whole_nodes(
    cycle: Cycle, nodes: Counts, devices: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]] | None:
    """(m,) bits of all free devices of each node, where each is just enough for one task."""
    if len(np.unique(nodes)) < len(nodes):
        return None
    free: Bools = cycle.room.soon.devices.take(nodes, 1) >= MILLI
    if bool((free.sum(axis=0) != devices).any()):
        return None
    bits = np.uint64(1) << np.arange(len(free), dtype=np.uint64)
    return np.asarray((free.T * bits).sum(axis=1, dtype=np.uint64))


def from_others(cycle: Cycle, claim: Claim, leaf: int) -> tuple[VictimTable, Budgets] | None:
    """Those of whom a claim may take, and how much."""
    budgets = budgets_of(cycle, claim)
    if budgets is None:
        return None
    giving: Bools = np.asarray((budgets.excess > 0).any(axis=1))
    giving[leaf] = False
    return victims_of(cycle, giving), budgets
