"""What could never be: asked when a workload is submitted, and told while it waits.

Judged against everything the cluster has, busy, broken or cordoned, and against the project's
rules as they are: only more hardware or other rules would help.
"""

from typing import TYPE_CHECKING

import numpy as np

from carrel_scheduler.core.barriers import barrier
from carrel_scheduler.core.blame import asked_resources, asking, to_blame
from carrel_scheduler.core.reasons import Reason, ReasonClass, Token
from carrel_scheduler.core.resources import MILLI
from carrel_scheduler.core.room import fitting
from carrel_scheduler.core.standings import (
    RESOURCE_NAMES,
    Standing,
    cap_of,
)

if TYPE_CHECKING:
    from carrel_scheduler.core.state import State
    from carrel_scheduler.core.workloads import Record, Shape


def never_reason(state: "State", record: "Record") -> Reason | None:
    """Why no node, quota or limit could ever admit it, or ``None``.

    A cluster without any node is still coming up and refuses nothing.
    """
    return (_nodes(state, record) if state.nodes.slots else None) or _rules(state, record)


def _rules(state: "State", record: "Record") -> Reason | None:
    rule = state.project_columns.rule(record.project)
    empty = Standing(
        rule=rule,
        quota=rule.quota.as_tuple(),
        cap=cap_of(rule),
        fair=(0, 0, 0),
        ceiling=(0, 0, 0),
        used=[0, 0, 0],
        fixed=[0, 0, 0],
        total=(0, 0, 0),
    )
    found = barrier(empty, record.demand, preemptible=record.spec.preemptible)
    if found is None:
        return None
    return Reason(
        ReasonClass.NEVER,
        found.token,
        resource=RESOURCE_NAMES[found.resource],
        requested=found.asked,
        short=found.asked - found.bound,
        bound=found.bound,
        project=record.spec.project,
    )


def _nodes(state: "State", record: "Record") -> Reason | None:
    nodes, wanted = state.nodes, record.spec.nodes
    usable = np.array([bool(n) and (wanted is None or n in wanted) for n in nodes.names], np.bool_)
    eligible = np.zeros(len(nodes.schedulable), np.bool_)
    eligible[: len(usable)] = usable
    counts = fitting(record.shape, eligible, nodes.devices, nodes.capacity)
    if int(counts.sum()) >= record.shape[3]:
        return None
    request = record.spec.request.as_tuple()

    def could_hold(shape: "Shape") -> bool:
        there = fitting(shape, eligible, nodes.devices, nodes.capacity)
        return int(there.sum()) >= shape[3]

    scarce = to_blame(record.shape, could_hold)
    rest = asking((*request, 1, wanted), [r for r in asked_resources(record.shape) if r != scarce])
    with_rest = fitting(rest, eligible, nodes.devices, nodes.capacity) > 0
    amounts = (nodes.devices * MILLI, nodes.capacity[0], nodes.capacity[1])
    largest = int((amounts[scarce] * (with_rest if with_rest.any() else eligible)).max(initial=0))
    if largest < request[scarce]:
        asked, bound = request[scarce], largest
    else:
        asked, bound = record.demand[scarce], int(counts.sum()) * request[scarce]
    return Reason(
        ReasonClass.NEVER,
        Token.NEVER_FITS,
        resource=RESOURCE_NAMES[scarce],
        requested=asked,
        short=max(0, asked - bound),
        bound=bound,
        project=record.spec.project,
        nodes=tuple(sorted(wanted or ())),
    )
