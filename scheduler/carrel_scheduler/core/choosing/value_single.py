"""The value of one node at a time, in plain numbers (see ``value_tables``).

Most questions are about two or three nodes whose room has just changed, where arrays cost more in
calls than in numbers. Entries are added up in the order in which the tables do it for many nodes at
once, so both find the same to the last bit; ``sum`` may round otherwise, depending on its version.
"""

from collections.abc import Sequence

from carrel_scheduler.core.choosing.value_tables import NeedTables, Tables
from carrel_scheduler.core.resources import MILLI

Need = tuple[int, int, int]
"""Whole devices, thousandths of one device (0 without a share), millicores."""
Change = tuple[tuple[int, ...], tuple[float, ...]]
"""What a placement adds to the counts and to the amounts of a node."""
State = tuple[list[int], list[float], int]
"""Of a node: its counts as places in the table, its amounts, its group."""


class Single:
    """Values of single nodes for one set of tables."""

    def __init__(self, needs: NeedTables, tables: Tables) -> None:
        self._tables, self._step, self._steps = tables, needs.step, needs.steps
        self._counts: list[list[int]] = needs.counts.tolist()
        self._amounts: list[list[float]] = needs.amounts.tolist()
        self._slots = tables.slots.data
        self._usable: dict[int, list[float]] = {}
        self._bases: dict[int, list[int]] = {}
        self._changes: dict[tuple[int, int, int], Change] = {}

    def state(self, devices: Sequence[int], group: int) -> State:
        """Of a node of a group with so many free thousandths on its devices."""
        base = self._bases.get(group)
        if base is None:
            base = self._bases[group] = self._tables.bases(group)
        counts, amounts = self._counts, self._amounts
        places = [sum(each) for each in zip(base, *[counts[free] for free in devices], strict=True)]
        if not amounts[0]:
            return places, [], group
        sums = [sum(each) for each in zip(*[amounts[free] for free in devices], strict=True)]
        return places, sums, group

    def value(self, state: State, cpu: int, change: Change | None = None) -> float:
        """V of a node with so many free millicores, after what a placement changes."""
        places, amounts, group = state
        step, slots = self._step_of(cpu), self._slots
        found = usable = 0.0
        if change is None:
            for place in places:
                found += slots[place + step]
            for amount, weight in zip(amounts, self._weights(group, step), strict=True):
                usable += amount * weight
            return found + usable
        for place, more in zip(places, change[0], strict=True):
            found += slots[place + more + step]
        if amounts:
            weights = self._weights(group, step)
            for amount, added, weight in zip(amounts, change[1], weights, strict=True):
                usable += (amount + added) * weight
        return found + usable

    def after_whole(self, need: Need, state: State, devices: Sequence[int], cpu: int) -> float:
        """V after whole devices, or none, were taken; minus infinity where they are not free."""
        whole = need[0]
        if whole and devices.count(MILLI) < whole:
            return -float("inf")
        return self.value(state, cpu - need[2], self._change(whole, 0, MILLI))

    def after_share(self, need: Need, state: State, free: int, cpu: int) -> float:
        """V after a share was taken of a device with so many free thousandths."""
        return self.value(state, cpu - need[2], self._change(0, need[1], free))

    def best_share(self, need: Need, state: State, devices: Sequence[int], cpu: int) -> float:
        """V after a share was taken of the device for which it is largest."""
        return max(
            [self.after_share(need, state, free, cpu) for free in set(devices) if free >= need[1]],
            default=-float("inf"),
        )

    def _change(self, whole: int, share: int, free: int) -> Change:
        """What taking whole devices, or a share of a device with so much free, changes."""
        known = self._changes.get((whole, share, free))
        if known is None:
            counts, amounts = self._counts[free], self._amounts[free]
            if share:
                rest = free - share
                more = zip(self._counts[rest], counts, strict=True)
                usable = zip(self._amounts[rest], amounts, strict=True)
                known = tuple(a - b for a, b in more), tuple(a - b for a, b in usable)
            else:
                known = tuple(-whole * c for c in counts), tuple(-whole * a for a in amounts)
            self._changes[whole, share, free] = known
        return known

    def _step_of(self, cpu: int) -> int:
        return min(max(cpu // self._step, 0), self._steps - 1)

    def _weights(self, group: int, step: int) -> list[float]:
        key = group * self._steps + step
        known = self._usable.get(key)
        if known is None:
            known = self._usable[key] = self._tables.weights(key)
        return known
