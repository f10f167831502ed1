"""Placing MIG instances in the memory slots of a GPU.

Tables over the 256 masks of free slots answer how many instances of a profile fit and which place
is best: the one after which most is still possible, then the highest.

An instance stays after use (``WarmInstances``), since making or removing one takes about a
second. Its slots count as free; it is removed when another profile needs them. A new instance
takes, in this order, an unused one of its profile, a place without removals, a place with the
fewest removals.

Running instances never move, so for an eviction the victims are exactly those that overlap one of
the at most 8 places of the profile: all places are compared (``cheapest_clearing``).
"""

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from carrel_scheduler.core.layers import Footprint, Slots
from carrel_scheduler.core.mig.models import MEDIA, MODELS, Model, Profile, smallest_profile

MASKS = 256


@cache
def fitting(profile: Profile) -> bytes:
    """For each mask of free slots, the number of further instances of the profile that fit.

    Of a profile with media engines at most one; that they are still free is not looked at.
    """
    places = profile.places
    most = 1 if profile.media else len(places)
    return bytes(min(most, sum(place & free == place for place in places)) for free in range(MASKS))


def count(profile: Profile, masks: Iterable[int]) -> int:
    """The number of further instances of the profile that fit on devices with these free slots."""
    table = fitting(profile)
    return sum(table[free] for free in masks)


@cache
def orders(model: Model, profile: Profile) -> tuple[tuple[int, ...], ...]:
    """For each mask of free slots, the places (bits) that fit, the best first."""
    value = _futures(model)
    places = profile.places
    return tuple(
        tuple(
            sorted(
                (place for place in places if place & free == place),
                key=lambda place: (-value[free & ~place], -place),
            )
        )
        for free in range(MASKS)
    )


@cache
def _futures(model: Model) -> tuple[int, ...]:
    plain = [profile for profile in model.profiles.values() if not profile.media]
    return tuple(
        sum(fitting(profile)[free] * profile.size for profile in plain) for free in range(MASKS)
    )


@lru_cache(maxsize=256)
def profile_rows(name: str) -> Slots:
    """(1 + models, 256) how many instances of a profile fit, by model number and free slots."""
    return _rows([model.profiles.get(name) for model in MODELS.values()])


@lru_cache(maxsize=1024)
def memory_rows(memory_mib: int) -> Slots:
    """The same for the smallest profile of each model with so much memory."""
    return _rows([smallest_profile(model, memory_mib) for model in MODELS.values()])


def _rows(profiles: list[Profile | None]) -> Slots:
    rows = np.zeros((1 + len(profiles), MASKS), np.uint8)
    for code, profile in enumerate(profiles, 1):
        if profile is not None:
            rows[code] = np.frombuffer(fitting(profile), np.uint8)
    rows.setflags(write=False)
    return rows


Instance = tuple[str, int]
"""An instance that exists on a device and that nobody uses: profile and bits of its slots."""


class Placement(NamedTuple):
    """A place for a new instance.

    Attributes:
        bits: its memory slots.
        reused: an instance of this profile is there already.
        removed: the idle instances that must go first.
    """

    bits: int
    reused: bool
    removed: tuple[Instance, ...]


def place(
    model: Model,
    profile: Profile,
    free: int,
    warm: Sequence[Instance] = (),
    *,
    media_used: bool = False,
) -> Placement | None:
    """The best place for an instance on a device, or ``None`` where it does not fit.

    Args:
        model: the GPU model.
        profile: one of its profiles.
        free: bits of the slots that nobody uses, those of ``warm`` included.
        warm: instances that nobody uses.
        media_used: another instance uses the device's media engines.
    """
    if media_used and profile.media:
        return None
    places = orders(model, profile)[free]
    if not places:
        return None
    if not warm:
        return Placement(places[0], reused=False, removed=())
    options = [
        Placement(bits, (profile.name, bits) in warm, removals(warm, profile, bits))
        for bits in places
    ]
    return min(options, key=lambda option: (not option.reused, len(option.removed)))


def removals(warm: Sequence[Instance], profile: Profile, bits: int) -> tuple[Instance, ...]:
    """The idle instances that must go before an instance of the profile can lie at these slots.

    None when exactly this instance is there. An idle instance elsewhere that has the media engines
    must go too when the profile has them.
    """
    if (profile.name, bits) in warm:
        return ()
    return tuple(
        (name, there)
        for name, there in warm
        if there & bits or (profile.media and name.endswith(MEDIA))
    )


class InstanceUser(NamedTuple):
    """A task that occupies memory slots of a device.

    Attributes:
        bits: the slots; all of them for a task that holds the whole device.
        cost: what evicting it loses; the unit is the caller's.
        order: its place in the order in which tasks are evicted; equal for no two tasks.
        evictable: it may be evicted.
        media: its instance has the device's media engines.
    """

    bits: int
    cost: int
    order: int
    evictable: bool
    media: bool = False


class Clearing(NamedTuple):
    """A place for a new instance, and the cost of clearing it.

    Attributes:
        device: index of the device; bits: slots of the new instance.
        victims: who has to go, by ``InstanceUser.order``.
        cost: the sum over the victims.
    """

    device: int
    bits: int
    victims: tuple[InstanceUser, ...]
    cost: int

    @property
    def rank(self) -> tuple[int, int, list[int]]:
        """The order in which places are taken, smallest first."""
        return (self.cost, len(self.victims), [victim.order for victim in self.victims])


def cheapest_clearing(
    profile: Profile, devices: Sequence[tuple[int, Sequence[InstanceUser]]]
) -> Clearing | None:
    """The place for an instance on one of the devices of a node whose victims cost least.

    Ties: fewer victims, those evicted first, the lowest device, the highest start.

    Args:
        profile: what is to fit.
        devices: of each device the bits of its free slots (those reserved for nobody else)
            and who holds the others; slots that are neither stay out of reach.
    """
    return next(iter(clearings(profile, devices)), None)


def clearings(
    profile: Profile, devices: Sequence[tuple[int, Sequence[InstanceUser]]]
) -> list[Clearing]:
    """The places on the devices of a node, the one whose victims cost least first.

    Arguments and ties as in ``cheapest_clearing``.
    """
    found = [
        option
        for device, (free, occupants) in enumerate(devices)
        for bits in reversed(profile.places)
        if (option := _clear(profile, device, bits, free, occupants)) is not None
    ]
    return sorted(found, key=lambda option: option.rank)


def _clear(
    profile: Profile, device: int, bits: int, free: int, occupants: Sequence[InstanceUser]
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


class WarmInstances:
    """Unused instances by (node, device)."""

    def __init__(self) -> None:
        self._kept: dict[tuple[int, int], tuple[Instance, ...]] = {}

    def on(self, node: int, device: int) -> tuple[Instance, ...]:
        """The idle instances kept on a device."""
        return self._kept.get((node, device), ())

    def all(self) -> dict[tuple[int, int], tuple[Instance, ...]]:
        """All kept idle instances by (node, device)."""
        return dict(self._kept)

    def by_device(self, node: int, devices: int) -> tuple[tuple[Instance, ...], ...]:
        """The idle instances kept on each device of a node."""
        return tuple(self.on(node, device) for device in range(devices))

    def taken(self, place: Footprint) -> None:
        """A task lies there now: it uses the kept instance, or those in its way were removed."""
        for device in place.devices:
            left = tuple(
                (profile, bits)
                for profile, bits in self.on(place.node, device)
                if not bits & place.slots
            )
            self._put(place.node, device, left)

    def left(self, place: Footprint, profile: str) -> None:
        """Keep the instance of a task that has ended."""
        for device in place.devices:
            kept = (*self.on(place.node, device), (profile, place.slots))
            self._put(place.node, device, tuple(sorted(kept)))

    def removed(self, node: int, device: int, bits: int) -> None:
        """An instance is gone."""
        left = tuple(one for one in self.on(node, device) if one[1] != bits)
        self._put(node, device, left)

    def forget(self, node: int) -> None:
        """A node left."""
        for key in [key for key in self._kept if key[0] == node]:
            del self._kept[key]

    def _put(self, node: int, device: int, instances: tuple[Instance, ...]) -> None:
        if instances:
            self._kept[node, device] = instances
        else:
            self._kept.pop((node, device), None)
