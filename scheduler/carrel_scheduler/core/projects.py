"""Projects as columns: rules, and sums that every event keeps up to date.

Each sum is a (Q, 3) int64 array over (GPU thousandths, millicores, MiB). ``used`` counts what is
placed and not told to stop, which is what quotas and limits are measured against; what is being
released still holds its room, but no longer its project's rights.
"""

from dataclasses import dataclass

import numpy as np

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import ProjectSet
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.resources import UNLIMITED, Amounts

Triple = tuple[int, int, int]
SUMS = ("used", "used_fixed", "releasing", "promised", "promised_fixed", "waiting")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most a project may hold under the present rules.

    Rules bind what starts after they are set: where a project held more at that moment, that is
    the bound until its rules are set again.
    """

    fixed: Triple
    all: Triple


class ProjectColumns:
    """Rules and sums of all projects.

    Attributes:
        slots: name -> slot; ``rules``: slot -> the last ``ProjectSet``, ``None`` when unused.
        used, used_fixed: held by all work, and by non-preemptible work.
        releasing: held by tasks that were told to stop.
        promised, promised_fixed: room held for waiting work.
        waiting: asked for by waiting work.
    """

    def __init__(self) -> None:
        self.slots: dict[str, int] = {}
        self.rules: list[ProjectSet | None] = []
        self.ceilings: list[Ceiling | None] = []
        self.used: Counts = np.zeros((0, 3), np.int64)
        self.used_fixed: Counts = self.used.copy()
        self.releasing: Counts = self.used.copy()
        self.promised: Counts = self.used.copy()
        self.promised_fixed: Counts = self.used.copy()
        self.waiting: Counts = self.used.copy()

    def copy(self) -> "ProjectColumns":
        """An independent copy."""
        twin = ProjectColumns()
        twin.slots, twin.rules = dict(self.slots), list(self.rules)
        twin.ceilings = list(self.ceilings)
        for name in SUMS:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def slot(self, name: str) -> int:
        """The slot of a project; ``InvalidEvent`` when there is none of that name."""
        slot = self.slots.get(name)
        if slot is None:
            raise InvalidEvent("unknown_project", "project", name, "the name of a known project")
        return slot

    def rule(self, slot: int) -> ProjectSet:
        """The rules of the project in this slot."""
        rule = self.rules[slot]
        if rule is None:
            raise KeyError(slot)
        return rule

    def set(self, event: ProjectSet) -> None:
        """Add a project or change its rules."""
        _check_project(event)
        slot = self.slots.get(event.name)
        if slot is None:
            slot = self._new_slot()
            self.slots[event.name] = slot
        self.rules[slot] = event
        quota, limit = event.quota.as_tuple(), event.limit.as_tuple()
        self.ceilings[slot] = Ceiling(
            fixed=_at_least(quota, self.used_fixed[slot] + self.promised_fixed[slot]),
            all=_at_least(limit, self.used[slot] + self.promised[slot]),
        )

    def ceiling(self, slot: int) -> Ceiling:
        """The most this project may hold."""
        ceiling = self.ceilings[slot]
        if ceiling is None:
            raise KeyError(slot)
        return ceiling

    def drop(self, name: str) -> None:
        """Forget a project that has no workloads."""
        slot = self.slots.pop(name)
        self.rules[slot] = self.ceilings[slot] = None

    def _new_slot(self) -> int:
        for slot, rule in enumerate(self.rules):
            if rule is None:
                return slot
        self.rules.append(None)
        self.ceilings.append(None)
        for name in SUMS:
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros((1, 3), np.int64)]))
        return len(self.rules) - 1


def _at_least(bound: Triple, held: Counts) -> Triple:
    gpu, cpu, memory = (
        UNLIMITED if most == UNLIMITED else max(most, int(now))
        for most, now in zip(bound, held, strict=True)
    )
    return gpu, cpu, memory


def _check_project(event: ProjectSet) -> None:
    if not event.name:
        raise InvalidEvent("bad_name", "name", event.name, "a name that is not empty")
    for field, amounts in (("quota", event.quota), ("limit", event.limit)):
        _check_amounts(field, amounts)
    if event.weight is not None and event.weight < 0:
        raise InvalidEvent("bad_amount", "weight", event.weight, "a weight that is not negative")


def _check_amounts(field: str, amounts: Amounts) -> None:
    for value in amounts.as_tuple():
        if value < UNLIMITED:
            expected = "an amount that is not negative, or -1 for unlimited"
            raise InvalidEvent("bad_amount", field, value, expected)
