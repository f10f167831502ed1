"""Workloads of the core that are made of guests: a gang, or one pod for itself.

A team has *slots*, tasks of the core. A slot outlives its pod: when a pod was evicted and its
controller makes another, that one takes the slot and with it the place in the queue and what was
promised. What the core was told of a slot (``place``, ``leaving``) stands beside what the cluster
shows (``member``); ``settling`` brings the two together.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from carrel_scheduler.core.requests import NOTHING, Request
from carrel_scheduler.engines.kubernetes.external_pods.members import Member
from carrel_scheduler.engines.kubernetes.pods.labels import Grouping


@dataclass(frozen=True, slots=True)
class GuestPlace:
    """What the core holds for a slot."""

    node: str
    devices: tuple[int, ...]


@dataclass(slots=True, eq=False)
class Slot:
    """One task of a team.

    Attributes:
        index: the task's index in the core.
        member: its pod; ``None`` while the next one is awaited.
        place: what the core holds for it; ``leaving``: the core knows that it is being freed, and
            counts on it until ``gone_by``.
        sent: whether the binding of the present pod was ordered.
        evicted: whether its pod was told to give way.
        vacant_until: until when the next pod is awaited.
        done: its work is over for good.
        since: when it got its place.
        request: what its pod asks for, or the last one asked for.
        counted: what the core knows that it asks for; a pod that asks for another amount is not
            bound to a place that was held for this.
        waits: why no node serves its pod, for reasons that the core does not know; in words.
        follows: what it asks for depends on what else happens.
        checked: what is placed in the same turn may come in its way.
        failures: bindings in a row that were refused.
    """

    role: str
    index: int = 0
    member: Member | None = None
    place: GuestPlace | None = None
    leaving: bool = False
    gone_by: float | None = None
    sent: bool = False
    evicted: bool = False
    vacant_until: float | None = None
    done: bool = False
    since: float = 0.0
    request: Request = NOTHING
    counted: Request = NOTHING
    waits: str = ""
    follows: bool = False
    checked: bool = False
    failures: int = 0

    @property
    def ready(self) -> bool:
        """Whether there is a pod that may start."""
        one = self.member
        return (
            one is not None
            and not one.gated
            and not (self.waits and not one.node)
            and not (one.ending and not one.node)
            and one.outcome is None
        )


@dataclass(slots=True, eq=False)
class Team:
    """One workload of the core.

    Attributes:
        uid: the core's.
        loose: one pod for itself.
        slots: in the order of their indices once it is queued.
        queued: whether the core knows it.
        reshaped: its slots are not those that the core knows.
        evicted_at: when it last gave its room back.
        not_before: it is not queued again before this time.
        asked: the slots that the core knows, by index.
        borrowed: it runs beyond its project's quota.
        why: the reason it waits for, as it was last told: token and sentence.
    """

    uid: str
    grouping: Grouping
    loose: bool
    slots: list[Slot] = field(default_factory=list)
    queued: bool = False
    reshaped: bool = False
    evicted_at: float | None = None
    not_before: float = 0.0
    asked: tuple[Slot, ...] = ()
    borrowed: bool = False
    why: tuple[str, str] = ("", "")

    @property
    def holding(self) -> bool:
        """Whether the core holds any place for it."""
        return any(slot.place is not None for slot in self.slots)

    @property
    def name(self) -> str:
        """What people call it."""
        first = self.slots[0].member if self.loose and self.slots else None
        return first.ref.name if first is not None else self.grouping.name

    def complete(self) -> bool:
        """Whether enough pods are there, or are on their way back, to start."""
        if self.loose:
            return any(_counts(slot) for slot in self.slots)
        return all(
            sum(1 for slot in self.slots if slot.role == role.name and _counts(slot)) >= role.least
            for role in self.grouping.roles
        )

    def asking(self) -> list[Slot]:
        """The slots that the core is to know, in the order of their roles, then names."""
        wanted = [slot for slot in self.slots if _counts(slot)]
        if self.loose:
            return wanted
        ranks = {role.name: rank for rank, role in enumerate(self.grouping.roles)}
        return sorted(wanted, key=lambda slot: (ranks[slot.role], _name(slot)))

    def at(self, index: int) -> Slot:
        """The slot of a task of the core."""
        return self.asked[index]

    def __iter__(self) -> Iterator[Slot]:
        """Its slots."""
        return iter(tuple(self.slots))


def _counts(slot: Slot) -> bool:
    return slot.ready or (slot.member is None and not slot.done and slot.vacant_until is not None)


def _name(slot: Slot) -> str:
    return "" if slot.member is None else slot.member.ref.name
