"""Builders of small trees of queues: GPUs only, in whole devices or decimals."""

from collections.abc import Mapping
from typing import Any

from carrel_scheduler.core.events import QueueSet
from carrel_scheduler.core.queues.fair_share import Division
from carrel_scheduler.core.queues.queues import QueueColumns, Sum
from carrel_scheduler.core.queues.usage import QueueUsage
from carrel_scheduler.core.resources import OPEN, UNLIMITED, ResourceVector, Triple

OPEN_HOST = (UNLIMITED, UNLIMITED)
TOTAL_HOST = (64_000, 256 * 1024)


def gpus(amount: float, cpu: int = 0, memory: int = 0) -> Triple:
    """An amount of GPUs (and millicores, MiB)."""
    return round(amount * 1000), cpu, memory


def queue(name: str, quota: float, parent: str = "", **more: Any) -> QueueSet:
    """A queue that guarantees so many GPUs; -1 is open, as CPU and memory are."""
    limit = more.pop("limit", None)
    weight = more.pop("weight", None)
    return QueueSet(
        name,
        bound(quota),
        OPEN if limit is None else bound(limit),
        None if weight is None else (round(weight * 1000),) * 3,
        parent=parent,
        **more,
    )


def bound(amount: float) -> ResourceVector:
    return ResourceVector(UNLIMITED if amount < 0 else round(amount * 1000), *OPEN_HOST)


def columns(*queues: QueueSet) -> QueueColumns:
    built = QueueColumns()
    for event in queues:
        built.set(event)
    return built


def hold(built: QueueColumns, name: str, amount: float, *, fixed: bool = False) -> None:
    built.add(Sum.USED, built.slot(name), gpus(amount))
    if fixed:
        built.add(Sum.FIXED, built.slot(name), gpus(amount))


def want(built: QueueColumns, name: str, amount: float) -> None:
    built.add(Sum.WAITING, built.slot(name), gpus(amount))


def queue_usage(
    built: QueueColumns,
    total: float,
    used: Mapping[str, float] | None = None,
    waiting: Mapping[str, float] | None = None,
    usage_factor: int = 0,
) -> QueueUsage:
    """The queue_usage after so many GPUs were placed and asked for."""
    for name, amount in (used or {}).items():
        hold(built, name, amount)
    for name, amount in (waiting or {}).items():
        want(built, name, amount)
    return QueueUsage(built, Division(usage_factor), gpus(total, *TOTAL_HOST))


def fair(built: QueueColumns, stand: QueueUsage) -> dict[str, float]:
    """Fair shares in GPUs by name."""
    return {name: stand.fair[slot][0] / 1000 for name, slot in built.slots.items()}
