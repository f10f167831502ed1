"""Tables over the 256 masks of free memory slots.

How many more instances fit: the places of one profile never overlap each other, so they are simply
counted. Which place is best: the one after which most is still possible, measured as the sum over
the model's profiles of the slots that further instances of that profile alone could fill; of equal
ones the highest, because the highest slots are of least use to large profiles.

The answer over all nodes is one ``take``: a node's model number selects a row of 256 counts.
"""

from collections.abc import Iterable
from functools import cache, lru_cache

import numpy as np

from carrel_scheduler.core.layers import Slots
from carrel_scheduler.core.mig.models import MODELS, Model, Profile, smallest_profile

MASKS = 256


@cache
def fitting(profile: Profile) -> bytes:
    """For each mask of free slots, how many more instances of the profile fit on the device.

    Of a profile with media engines at most one; that they are still free is not looked at.
    """
    places = profile.places
    most = 1 if profile.media else len(places)
    return bytes(min(most, sum(place & free == place for place in places)) for free in range(MASKS))


def count(profile: Profile, masks: Iterable[int]) -> int:
    """How many more instances of the profile fit on devices with these free slots."""
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
