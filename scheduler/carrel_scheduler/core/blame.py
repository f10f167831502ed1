"""Which of the resources asked for stands in the way, wherever "could it be had" has an answer."""

from collections.abc import Callable, Sequence

from carrel_scheduler.core.standings import RESOURCES
from carrel_scheduler.core.workloads import Shape


def asked_resources(shape: Shape) -> list[int]:
    """The resources that a shape asks for."""
    return [resource for resource in RESOURCES if shape[resource]]


def asking(shape: Shape, resources: Sequence[int]) -> Shape:
    """The same shape asking for these resources only."""
    gpu, cpu, memory, tasks, nodes = shape
    kept = [amount * (r in resources) for r, amount in enumerate((gpu, cpu, memory))]
    return kept[0], kept[1], kept[2], tasks, nodes


def to_blame(shape: Shape, can_be_had: Callable[[Shape], bool]) -> int:
    """The resource that keeps a shape from being had, where ``can_be_had`` says no to the shape.

    One that could not be had even if nothing else were asked for; else one without which the rest
    could be had, GPUs last, because asking for less memory or CPU is easier.
    """
    asked = asked_resources(shape)
    for resource in asked:
        if not can_be_had(asking(shape, [resource])):
            return resource
    for resource in reversed(asked):
        if can_be_had(asking(shape, [other for other in asked if other != resource])):
            return resource
    return next(iter(asked), 0)
