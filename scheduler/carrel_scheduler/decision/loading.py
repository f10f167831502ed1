"""A whole cluster into an empty state at once: at start-up, and for what is built to be measured."""

from collections.abc import Iterable
from dataclasses import dataclass

from carrel_scheduler.decision.events import (
    CheckpointSeen,
    Event,
    NodeSet,
    QueueSet,
    TaskPlaced,
    TopologySet,
    UsageSeen,
    WorkloadQueued,
)
from carrel_scheduler.decision.state import State


@dataclass(frozen=True, slots=True)
class Listing:
    """All that there is.

    Attributes:
        topologies, nodes, usage: in any order.
        queues: parents before children.
        workloads: those that run and those that wait.
        placed: tasks that hold room.
        saved: the last checkpoints.
        rest: what else happened to them (stops, ends, promises), in order.
    """

    nodes: Iterable[NodeSet] = ()
    queues: Iterable[QueueSet] = ()
    topologies: Iterable[TopologySet] = ()
    usage: Iterable[UsageSeen] = ()
    workloads: Iterable[WorkloadQueued] = ()
    placed: Iterable[TaskPlaced] = ()
    saved: Iterable[CheckpointSeen] = ()
    rest: Iterable[Event] = ()


def load(state: State, listing: Listing) -> None:
    """Take all of it in."""
    for part in (
        listing.topologies,
        listing.nodes,
        listing.queues,
        listing.usage,
        listing.workloads,
        listing.placed,
        listing.saved,
        listing.rest,
    ):
        for event in part:
            state.apply(event)
