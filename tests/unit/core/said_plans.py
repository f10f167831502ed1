"""Plans that are written by hand, and what the invariants say of them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from carrel_scheduler.core.events import Event
from carrel_scheduler.core.plan import Binding, Eviction, Nomination, Plan, Removal
from carrel_scheduler.core.queues.rules import NO_BOUND
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from unit.core.invariants.evictions import check_plan
from unit.core.situations import NOW, node, queue, running, state_of, training

WAITS = Reason(ReasonClass.NOT_NOW, Token.WAITS_FOR_ROOM)


@dataclass
class Decisions:
    """A plan that is said, not decided."""

    bindings: list[Binding] = field(default_factory=list)
    evictions: list[Eviction] = field(default_factory=list)
    nominations: list[Nomination] = field(default_factory=list)
    removals: list[Removal] = field(default_factory=list)
    reasons: dict[str, Reason] = field(default_factory=dict)
    fair_share: Mapping[str, int] = field(default_factory=lambda: defaultdict(lambda: NO_BOUND))


def complaints(events: list[Event], now: float = NOW, **decisions: Any) -> list[str]:
    """Names of the invariants that complain; whoever waits has a reason unless one is given."""
    state = state_of(*events)
    if "reasons" not in decisions:
        decisions["reasons"] = {uid: WAITS for uid, job in state.jobs.by_uid.items() if job.queued}
    found = check_plan(state, cast("Plan", Decisions(**decisions)), now)
    return sorted({one.partition(":")[0] for one in found})


def start(uid: str, place: str, *devices: int, index: int = 0) -> Binding:
    return Binding(uid, index, place, devices)


def stop(uid: str, token: Token, whom: str = "", *indices: int, moved: bool = False) -> Eviction:
    return Eviction(
        uid, Reason(ReasonClass.EVICTED, token, workload_uid=whom), tuple(indices), moved
    )


def hold(uid: str, place: str, *devices: int) -> Nomination:
    return Nomination(uid, ((place, devices, 0),))


def full(*, project: str = "a", **more: Any) -> list[Event]:
    """`v` of some project runs on all of the node since second 1, `w` of `b` waits."""
    return [
        node("n1", 2),
        queue("a", 1),
        queue("b", 2),
        *running(training("v", project, 2, **more), "n1", 0, 1),
        training("w", "b", 2, priority=60),
    ]


ROOM = [hold("w", "n1", 0, 1)]
