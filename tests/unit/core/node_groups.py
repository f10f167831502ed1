"""Nodes in groups, queues with quotas there, and what queues hold there."""

from typing import Any

from carrel_scheduler.core.events import NodeSet, QueueSet
from carrel_scheduler.core.requests import IN_GROUP, NodeConstraint, Request
from unit.core.runs import Run
from unit.core.situations import node, queue


def in_group(group: str) -> NodeConstraint:
    return NodeConstraint(labels=((IN_GROUP, frozenset({group})),))


def grouped(name: str, gpus: int, group: str, **more: Any) -> NodeSet:
    return node(name, gpus, labels=((IN_GROUP, group),), **more)


A100, H100 = grouped("a1", 4, "a100"), grouped("h1", 4, "h100")


def held_there(run: Run, owner: str, group: str = "a100") -> float:
    """GPUs that a queue and those below it hold in a group, recounted task by task."""
    state, found = run.state, 0
    slot, tasks = state.queues.slots[owner], state.tasks
    for row in tasks.used().tolist():
        job = state.jobs.at(tasks.job.item(row))
        labels = dict(state.nodes.fact(tasks.node.item(row)).labels)
        counts = labels.get(IN_GROUP) == group and not tasks.stopping[row]
        if counts and slot in state.queues.path(job.queue):
            found += sum(tasks.footprint(row).amounts[:1])
    return found / 1000


def guaranteed(name: str, gpus: float = 8, parent: str = "", **groups: float) -> QueueSet:
    """A queue with so many GPUs in all, and some of them in groups."""
    quotas = tuple((group, round(amount * 1000)) for group, amount in groups.items())
    return queue(name, gpus, parent=parent, group_quotas=quotas)


def asked(group: str, gpus: int = 1) -> Request:
    """GPUs that are in a group."""
    return Request(gpus=gpus, where=in_group(group))
