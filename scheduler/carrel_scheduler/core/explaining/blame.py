"""Which of the resources asked for stands in the way, wherever "could it be had" has an answer."""

from collections.abc import Callable, Sequence


def to_blame(asked: Sequence[int], can_be_had: Callable[[Sequence[int]], bool]) -> int:
    """The resource that keeps something from being had, where all of ``asked`` cannot.

    One that could not be had even if nothing else were asked for; else one without which the rest
    could be had, GPUs last, because asking for less of anything else is easier.

    Args:
        asked: the resources, GPUs first.
        can_be_had: whether these of them could be had together.
    """
    for resource in asked:
        if not can_be_had([resource]):
            return resource
    for resource in reversed(asked):
        if can_be_had([other for other in asked if other != resource]):
            return resource
    return next(iter(asked), 0)
