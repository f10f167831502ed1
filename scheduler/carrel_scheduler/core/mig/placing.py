"""Where on a device a new instance goes while instances that nobody uses are still there.

Making and removing an instance takes about a second each, so an instance stays after use and is
removed only when another profile needs its room. Its slots count as free. Taken is, in this order:
an idle instance of the same profile; a place that needs no removal; a place that needs the fewest.
Equal ones by the table of ``slots``: what keeps most possible afterwards, then the highest start.
"""

from collections.abc import Sequence
from typing import NamedTuple

from carrel_scheduler.core.mig.models import MEDIA, Model, Profile
from carrel_scheduler.core.mig.slots import orders

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
