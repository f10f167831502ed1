"""What stands in a workload's way before any node is looked at: limits and quotas.

A resource that the workload does not ask for never stands in its way.
"""

from dataclasses import dataclass

from carrel_scheduler.core.projects import Triple
from carrel_scheduler.core.reasons import Token
from carrel_scheduler.core.resources import UNLIMITED
from carrel_scheduler.core.standings import RESOURCES, Standing


@dataclass(frozen=True, slots=True)
class Barrier:
    """A bound that the workload would break.

    Attributes:
        token: which rule.
        resource: index of the resource.
        held: what counts against the bound already.
        asked: what the workload asks for in all.
        bound: the quota or limit.
    """

    token: Token
    resource: int
    held: int
    asked: int
    bound: int

    @property
    def for_ever(self) -> bool:
        """Whether it stands even when the project holds nothing else."""
        return self.asked > self.bound


def barrier(standing: Standing, demand: Triple, *, preemptible: bool) -> Barrier | None:
    """The first rule that keeps this demand from starting, or ``None``."""
    limit = standing.rule.limit.as_tuple()
    found = _exceeded(Token.OVER_LIMIT, limit, standing.used, demand)
    if found is None and not preemptible:
        token = Token.NON_PREEMPTIBLE_BEYOND_QUOTA
        found = _exceeded(token, standing.quota, standing.fixed, demand)
    if found is None and not standing.rule.over_quota:
        found = _exceeded(Token.OVER_QUOTA_OFF, standing.quota, standing.used, demand)
    return found


def _exceeded(token: Token, bound: Triple, held: list[int], demand: Triple) -> Barrier | None:
    for resource in RESOURCES:
        most, asked = bound[resource], demand[resource]
        if asked and most != UNLIMITED and held[resource] + asked > most:
            return Barrier(token, resource, held[resource], asked, most)
    return None
