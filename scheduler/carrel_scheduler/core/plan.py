"""What ``decide`` returns: bindings, evictions, promises of room, and a reason for each waiter."""

from dataclasses import dataclass, field

from carrel_scheduler.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class Binding:
    """Start this task there, now: the room is free."""

    uid: str
    index: int
    node: str
    devices: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Eviction:
    """Stop this workload (all its tasks) with its grace period; ``reason`` says for whom."""

    uid: str
    reason: Reason


@dataclass(frozen=True, slots=True)
class Nomination:
    """Hold these places, being freed now, for a waiting workload."""

    uid: str
    places: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """One cycle's decisions, in the order in which they are to be carried out.

    Attributes:
        reasons: one for every waiting workload that does not start, by uid.
        queue: uids of all waiting workloads in the order of service.
        fair_share: GPU thousandths per project in this cycle.
    """

    bindings: tuple[Binding, ...] = ()
    evictions: tuple[Eviction, ...] = ()
    nominations: tuple[Nomination, ...] = ()
    reasons: dict[str, Reason] = field(default_factory=dict)
    queue: tuple[str, ...] = ()
    fair_share: dict[str, int] = field(default_factory=dict)
