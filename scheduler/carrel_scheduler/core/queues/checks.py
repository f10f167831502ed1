"""What a queue's rules may say: each wrong field is named with what would be right."""

import math
from typing import Final

from carrel_scheduler.core.errors import InvalidEvent
from carrel_scheduler.core.events import QueueSet, UsageSeen
from carrel_scheduler.core.resources import UNLIMITED

MOST: Final = 1 << 50
"""Larger amounts are mistakes, and sums of them might not fit 64 bits."""


def check_rules(event: QueueSet) -> None:
    """Refuse rules that mean nothing, whatever the other queues are."""
    if not event.name:
        raise InvalidEvent("bad_name", "name", event.name, "a name that is not empty")
    for field, amounts in (("quota", event.quota), ("limit", event.limit)):
        for value in amounts.as_tuple():
            if not UNLIMITED <= value <= MOST:
                expected = f"an amount from 0 to {MOST}, or -1 for unlimited"
                raise InvalidEvent("bad_amount", field, value, expected)
    if event.weight is not None and (
        len(event.weight) != 3 or not all(0 <= part <= MOST for part in event.weight)
    ):
        expected = "weights of GPUs, CPU and memory that are not negative"
        raise InvalidEvent("bad_amount", "weight", event.weight, expected)
    if not math.isfinite(event.created_at):
        raise InvalidEvent("bad_time", "created_at", event.created_at, "seconds since the epoch")
    for field, runtime in (
        ("preempt_min_runtime_s", event.preempt_min_runtime_s),
        ("reclaim_min_runtime_s", event.reclaim_min_runtime_s),
    ):
        if runtime is not None and not runtime >= 0:
            raise InvalidEvent("bad_time", field, runtime, "seconds that are not negative")


def check_parent(event: QueueSet, *, known: bool, below: bool) -> None:
    """Refuse a parent that cannot be one.

    Args:
        event: names the parent.
        known: there is a queue of that name.
        below: it is the queue itself or one of its descendants.
    """
    if event.parent == event.name or below:
        expected = "a queue that is not the queue itself or below it"
        raise InvalidEvent("queue_cycle", "parent", event.parent, expected)
    if not known:
        raise InvalidEvent("unknown_queue", "parent", event.parent, "the name of a known queue")


def check_usage(event: UsageSeen) -> None:
    """Refuse past use that is not a part of the cluster."""
    if len(event.part) != 3 or not all(0 <= part <= MOST for part in event.part):
        expected = "millionths of GPU, CPU and memory that are not negative"
        raise InvalidEvent("bad_amount", "part", event.part, expected)
