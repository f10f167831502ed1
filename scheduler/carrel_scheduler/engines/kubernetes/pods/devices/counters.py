"""Counters that devices of a pool share: a device is there while enough of each is left. Pure.

A driver describes a GPU and its parts as devices that take from the same counters: what one is
given, the others lack. A device that takes all of its counters is the whole; of a part it is known
by the counter ``memory`` how large it is, without one by the mean of all counters.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.engines.kubernetes.pods.devices.types import CounterSet, SliceDevice
from carrel_scheduler.engines.kubernetes.pods.quantities import nanos

Counter = tuple[str, str, str, str]
"""Driver, pool, set and counter."""
Amounts = Mapping[Counter, int]
NONE: Final[Amounts] = MappingProxyType({})
MEMORY: Final = "memory"


def totals(pool: tuple[str, str], sets: Iterable[CounterSet]) -> dict[Counter, int]:
    """A pool's amount of each counter, in billionths. Raises ``PodRefused``."""
    return {
        (*pool, one.name, name): nanos(amount.value, f"{one.name}.{name}")
        for one in sets
        for name, amount in one.counters.items()
    }


def taken(pool: tuple[str, str], device: SliceDevice, there: Amounts) -> dict[Counter, int] | None:
    """A device's use of each counter; ``None`` if the pool has no such counter.

    Raises:
        PodRefused: ``bad_quantity``.
    """
    found: dict[Counter, int] = {}
    for use in device.consumes_counters:
        for name, amount in use.counters.items():
            key = (*pool, use.counter_set, name)
            if key not in there:
                return None
            found[key] = found.get(key, 0) + nanos(amount.value, f"{device.name}.{name}")
    return found


def part_milli(takes: Amounts, there: Amounts) -> int:
    """The part of the whole that a device is, in thousandths, rounded up; at least 1."""
    if not takes:
        return MILLI
    sets = {key[:3] for key in takes}
    of_sets = {key: total for key, total in there.items() if key[:3] in sets and total > 0}
    memory = {key: total for key, total in of_sets.items() if key[3] == MEMORY}
    if all(takes.get(key, 0) >= total for key, total in of_sets.items()):
        return MILLI
    counted = memory or of_sets
    parts = [min(takes.get(key, 0), total) * MILLI / total for key, total in counted.items()]
    return max(1, min(MILLI, -int(-sum(parts) // len(parts))))


def less(left: Amounts, takes: Amounts) -> dict[Counter, int]:
    """The rest after a device was given; below zero where too much was."""
    return {**left, **{key: left.get(key, 0) - amount for key, amount in takes.items()}}


def enough(left: Amounts, takes: Amounts) -> bool:
    """Whether so much is left."""
    return all(left.get(key, 0) >= amount for key, amount in takes.items())
