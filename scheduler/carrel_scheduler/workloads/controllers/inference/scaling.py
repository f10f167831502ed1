"""How many replicas an endpoint should have: pure, from requests in flight and time.

Up at once; down when less has been enough for ``idle_seconds``, to as many as were needed at most
in that time. The last replica goes only when no request has come for as long.
"""

import math
from dataclasses import dataclass

from carrel_schema.sections import InferenceSpec


@dataclass(frozen=True, slots=True)
class Low:
    """Less than there is has been enough ``since`` then; ``need`` is the most of that time."""

    since: float
    need: int


@dataclass(frozen=True, slots=True)
class Demand:
    """What asks for replicas. ``last_request_at`` is epoch seconds."""

    in_flight: int = 0
    last_request_at: float | None = None


@dataclass(frozen=True, slots=True)
class Scale:
    """The answer; ``again_at`` is when it may change by itself."""

    wanted: int
    low: Low | None = None
    again_at: float | None = None


def needed(spec: InferenceSpec, in_flight: int) -> int:
    """Replicas for so many requests at once, within the endpoint's bounds."""
    least, most = spec.min_replicas, spec.max_replicas
    return min(max(math.ceil(in_flight / spec.in_flight_per_replica), least), most)


def scaled(spec: InferenceSpec, wanted: int, demand: Demand, low: Low | None, now: float) -> Scale:
    """The number of replicas from now on.

    Args:
        spec: bounds and times.
        wanted: the number so far; below 0 at the beginning, when one has to prove itself.
        demand: requests now.
        low: what the last answer said.
        now: epoch seconds.
    """
    if wanted < 0:
        return Scale(max(spec.min_replicas, 1, needed(spec, demand.in_flight)))
    present = min(max(wanted, spec.min_replicas), spec.max_replicas)
    need = needed(spec, demand.in_flight)
    if need >= present:
        return Scale(need)
    low = Low(now, need) if low is None else Low(low.since, max(low.need, need))
    idle_at = low.since + spec.idle_seconds
    quiet_at = (demand.last_request_at or low.since) + spec.idle_seconds
    if now < idle_at:
        return Scale(present, low, idle_at)
    if low.need > 0:
        return Scale(low.need, Low(now, need) if need < low.need else None)
    if now >= quiet_at:
        return Scale(0)
    return Scale(min(present, 1), low, quiet_at)
