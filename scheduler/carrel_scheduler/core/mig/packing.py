"""Whether a list of different profiles fits on one device, exactly, and where.

A depth-first search over at most 256 masks per profile: the largest first, each at the places that
keep most possible first; a (rest of the list, mask) that failed is not tried again.
"""

from collections.abc import Sequence

from carrel_scheduler.core.mig.models import Model, Profile
from carrel_scheduler.core.mig.slots import orders


def pack(
    model: Model, profiles: Sequence[str], free: int, *, media_used: bool = False
) -> tuple[int, ...] | None:
    """Disjoint slots (bits) for an instance of each profile, in their order.

    Args:
        model: the GPU model.
        profiles: names; ``None`` is the answer when the model lacks one of them.
        free: bits of the slots that may be used.
        media_used: an instance that stays uses the device's media engines.
    """
    kinds = [model.profiles[name] for name in profiles if name in model.profiles]
    media = sum(kind.media for kind in kinds) + media_used
    if len(kinds) < len(profiles) or (media > 1 and any(kind.media for kind in kinds)):
        return None
    largest_first = sorted(range(len(kinds)), key=lambda i: (-kinds[i].size, kinds[i].name, i))
    found = _search(model, [kinds[i] for i in largest_first], 0, free, set())
    if found is None:
        return None
    placed = dict(zip(largest_first, found, strict=True))
    return tuple(placed[i] for i in range(len(kinds)))


def _search(
    model: Model, kinds: list[Profile], first: int, free: int, failed: set[tuple[int, int]]
) -> list[int] | None:
    if first == len(kinds):
        return []
    if (first, free) in failed:
        return None
    for bits in orders(model, kinds[first])[free]:
        rest = _search(model, kinds, first + 1, free & ~bits, failed)
        if rest is not None:
            return [bits, *rest]
    failed.add((first, free))
    return None
