"""How one amount is divided among the queues of one parent, in integers.

Every queue first gets the smaller of its guarantee and what it wants; guarantees may add up to
more than there is and are never scaled down. What is left is dealt in rounds by weight, higher
ranks first; a queue that wants less than its part takes what it wants and leaves the rest to
another round. Parts beyond the guarantee are whole units (one GPU, one millicore, one MiB). What
rounding leaves over is offered to the next rank, and at last dealt one unit each: higher rank, then
the larger remainder, then the older queue; never beyond what the queue wants.

With time-based shares the normalised weight ``n`` of a queue becomes ``max(0, n + k * (n - u))``,
where ``u`` is its past use. Here ``k`` and ``u`` come in millionths, so that with ``n = w / W`` the
score is the integer ``max(0, w * (10**6 + k) * 10**6 - k * u * W)``; its scale cancels out.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from carrel_scheduler.core.resources import MILLI

UNITS: Final = (MILLI, 1, 1)
MILLION: Final = 1_000_000
Remainder = tuple[int, int]
"""What the last round owes a queue beyond whole units, negated, and the queue's place: sorted, the
largest comes first, and equal ones by age."""


@dataclass(frozen=True, slots=True)
class Siblings:
    """What does not change from cycle to cycle about one resource of the queues of one parent.

    Attributes:
        quota, cap: amounts, ``NO_BOUND`` where open; sequences run from the oldest queue on.
        weight: shares of the surplus, any scale.
        open_quotas: the places of the queues whose quota is all that there is to divide.
        ranks: the places of the queues in the sequences, by rank, highest first.
        unit: what shares beyond the guarantee are multiples of.
    """

    quota: Sequence[int]
    cap: Sequence[int]
    weight: Sequence[int]
    open_quotas: tuple[int, ...]
    ranks: tuple[tuple[int, ...], ...]
    unit: int


@dataclass(frozen=True, slots=True)
class Past:
    """Past use of the siblings and how much it counts, both in millionths."""

    usage: Sequence[int] = ()
    factor: int = 0


NO_PAST: Final = Past()


def divide(
    total: int, siblings: Siblings, demand: Sequence[int], past: Past = NO_PAST
) -> list[int]:
    """The fair share of each sibling.

    Args:
        total: what there is to divide.
        siblings: their rules.
        demand: what each holds and waits for.
        past: for time-based shares.
    """
    wanted = list(map(min, demand, siblings.cap))
    fair = list(map(min, wanted, siblings.quota))
    for place in siblings.open_quotas:
        fair[place] = min(wanted[place], total)
    left = total - sum(fair)
    if left <= 0 or fair == wanted:
        return fair
    owed: list[list[Remainder]] = []
    for rank in siblings.ranks:
        hungry = [p for p in rank if wanted[p] > fair[p] and siblings.weight[p]]
        if hungry and left > 0:
            left, remainders = _deal(left, siblings, hungry, wanted, fair, past)
            owed.append(remainders)
    for remainders in owed if left > 0 else ():
        for _, place in sorted(remainders):
            given = min(siblings.unit, left, wanted[place] - fair[place])
            fair[place] += given
            left -= given
    return fair


def _deal(
    left: int,
    siblings: Siblings,
    hungry: list[int],
    wanted: list[int],
    fair: list[int],
    past: Past,
) -> tuple[int, list[Remainder]]:
    """Deal to the queues of one rank; what is left, and what the last round owed to whom."""
    weight, unit = siblings.weight, siblings.unit
    remainders: list[Remainder] = []
    again = True
    while again and left and hungry:
        scores = [weight[place] for place in hungry]
        if past.factor:
            scores = _by_past(scores, hungry, past)
        whole = sum(scores)
        if not whole:
            break
        start, again, unsatisfied, remainders = left, False, [], []
        per_unit = whole * unit
        for place, score in zip(hungry, scores, strict=True):
            offer, missing = start * score, wanted[place] - fair[place]
            given = offer // per_unit * unit
            if given >= missing or missing * whole <= offer:
                given = missing
                again |= missing * whole < offer
            else:
                unsatisfied.append(place)
                if rest := offer - given * whole:
                    remainders.append((-rest, place))
            fair[place] += given
            left -= given
        hungry = unsatisfied
    return left, remainders


def _by_past(weights: list[int], places: list[int], past: Past) -> list[int]:
    factor, usage, whole = past.factor, past.usage, sum(weights)
    if not any(usage):
        return weights
    return [
        max(0, weight * (MILLION + factor) * MILLION - factor * usage[place] * whole)
        for weight, place in zip(weights, places, strict=True)
    ]
