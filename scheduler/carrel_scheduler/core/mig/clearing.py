"""Whom to evict so that an instance of a profile fits: the cheapest legal place, exactly.

Running instances never move, so sizes alone do not decide: with instances of 2 slots at 0, 2 and 4
only the one at 4 stands in the way of a 4-slot instance (at 4). A profile has at most 8 places on a
device; for each, exactly the occupants that overlap it have to go, so all are looked at.
"""

from collections.abc import Sequence
from typing import NamedTuple

from carrel_scheduler.core.mig.models import Profile


class Occupant(NamedTuple):
    """A task that holds memory slots of a device.

    Attributes:
        bits: the slots; all of them for a task that holds the whole device.
        cost: what evicting it loses; the unit is the caller's.
        order: its place in the order in which tasks give way; equal for no two tasks.
        evictable: it may be told to stop.
        media: its instance has the device's media engines.
    """

    bits: int
    cost: int
    order: int
    evictable: bool
    media: bool = False


class Clearing(NamedTuple):
    """A place and what it costs.

    Attributes:
        device: index of the device; bits: slots of the new instance.
        victims: who has to go, by ``Occupant.order``.
        cost: the sum over the victims.
    """

    device: int
    bits: int
    victims: tuple[Occupant, ...]
    cost: int

    @property
    def rank(self) -> tuple[int, int, list[int]]:
        """The order in which places are taken, smallest first."""
        return (self.cost, len(self.victims), [victim.order for victim in self.victims])


def cheapest_clearing(
    profile: Profile, devices: Sequence[tuple[int, Sequence[Occupant]]]
) -> Clearing | None:
    """The place for an instance on one of the devices of a node whose victims cost least.

    Ties: fewer victims, then those that give way first, then the lowest device and highest start.

    Args:
        profile: what is to fit.
        devices: of each device the bits of its free slots (those that nobody else was promised)
            and who holds the others; slots that are neither stay out of reach.
    """
    best: Clearing | None = None
    for device, (free, occupants) in enumerate(devices):
        for bits in reversed(profile.places):
            option = _clear(profile, device, bits, free, occupants)
            if option is not None and (best is None or option.rank < best.rank):
                best = option
    return best


def _clear(
    profile: Profile, device: int, bits: int, free: int, occupants: Sequence[Occupant]
) -> Clearing | None:
    victims = [o for o in occupants if o.bits & bits or (profile.media and o.media)]
    for victim in victims:
        if not victim.evictable:
            return None
        free |= victim.bits
    if bits & ~free:
        return None
    ordered = tuple(sorted(victims, key=lambda victim: victim.order))
    return Clearing(device, bits, ordered, sum(victim.cost for victim in ordered))
