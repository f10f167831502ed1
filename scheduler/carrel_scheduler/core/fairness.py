"""Fair shares: how each resource of the cluster is divided among projects, in integers.

Every project first gets the smaller of its guarantee and its demand. What is left is dealt in
rounds by weight, higher ranks strictly first; a project that wants less than its part takes what it
wants and leaves the rest to another round. Shares beyond the guarantee are whole units (a GPU, a
millicore, a MiB); what rounding leaves over is dealt one unit each, largest remainder first, then
the older project, then the name. Past use does not count yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from carrel_scheduler.core.resources import MILLI, UNLIMITED

UNITS = (MILLI, 1, 1)


@dataclass(slots=True)
class Claimant:
    """One project in the division of one resource.

    Attributes:
        demand: what it holds and waits for.
        fair: the result.
        remainder: what the last round owed it beyond whole units.
    """

    name: str
    quota: int
    limit: int
    weight: int
    rank: int
    created_at: float
    demand: int
    fair: int = 0
    remainder: Fraction = field(default_factory=Fraction)

    @property
    def wanted(self) -> int:
        """What it can use: its demand within its limit."""
        return self.demand if self.limit == UNLIMITED else min(self.limit, self.demand)


def divide(total: int, claimants: Sequence[Claimant], unit: int) -> None:
    """Divide ``total`` of one resource; the result is in each claimant's ``fair``."""
    left = total
    for claimant in claimants:
        guarantee = total if claimant.quota == UNLIMITED else claimant.quota
        claimant.fair = min(guarantee, claimant.wanted)
        left -= claimant.fair
    left = max(left, 0)
    ranks = sorted({claimant.rank for claimant in claimants}, reverse=True)
    groups = [[c for c in claimants if c.rank == rank] for rank in ranks]
    for group in groups:
        left = _deal_by_weight(left, group, unit)
    for group in groups:
        left = _deal_remainders(left, group, unit)


def _deal_by_weight(left: int, group: list[Claimant], unit: int) -> int:
    again = True
    while again and left > 0:
        again = False
        hungry = [c for c in group if c.wanted > c.fair and c.weight > 0]
        weights = sum(c.weight for c in hungry)
        at_start = left
        for claimant in hungry:
            if left <= 0:
                break
            offer = Fraction(at_start * claimant.weight, weights)
            missing = claimant.wanted - claimant.fair
            if missing <= offer:
                given, claimant.remainder = missing, Fraction(0)
            else:
                given = int(offer) // unit * unit
                claimant.remainder = offer - given
            claimant.fair += given
            left -= given
            again |= missing < offer
    return left


def _deal_remainders(left: int, group: list[Claimant], unit: int) -> int:
    owed = [c for c in group if c.remainder > 0]
    for claimant in sorted(owed, key=lambda c: (-c.remainder, c.created_at, c.name)):
        given = min(unit, left)
        claimant.fair += given
        left -= given
    return left
