"""The core on openb, as the product runs it: events in, ``decide``, its plan carried out.

Pods are non-preemptible trainings of one open project, in order of submission, so the core places
them one by one and stops or moves none; settings are the defaults. What a decision leaves waiting
is withdrawn at once, so nothing is reserved for it either. All that the core knows of what is
typical it learns from the pods queued so far.
"""

from collections.abc import Sequence

from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    NodeSet,
    Outcome,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    TaskReleased,
    WorkloadQueued,
    WorkloadRemoved,
)
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import OPEN
from carrel_scheduler.core.settings import NAMED
from carrel_scheduler.core.state import State

PROJECT = "openb"


class CorePolicy:
    """Places pods by decisions; a place is told by the uid of its pod."""

    def __init__(self, nodes: list[NodeSet]) -> None:
        self._state = State()
        for node in nodes:
            self._state.apply(node)
        self._state.apply(QueueSet(PROJECT, OPEN))
        self._arrived = 0

    def place(self, pods: Sequence[Request]) -> list[str | None]:
        """Place pods: their places, ``None`` for each that does not fit."""
        state, first = self._state, self._arrived
        self._arrived += len(pods)
        for number, pod in enumerate(pods, first):
            state.apply(_queued(number, pod))
        now = float(self._arrived)
        started = set()
        for one in decide(state, now).bindings:
            state.apply(TaskPlaced(one.uid, one.index, one.node, one.devices, now))
            started.add(one.uid)
        uids = [str(number) for number in range(first, self._arrived)]
        for uid in uids:
            if uid not in started:
                state.apply(WorkloadRemoved(uid))
        return [uid if uid in started else None for uid in uids]

    def finish(self, place: str) -> None:
        """The pod of this uid ended."""
        self._state.apply(TaskReleased(place, 0, Outcome.SUCCEEDED, float(self._arrived)))
        self._state.apply(WorkloadRemoved(place))


def _queued(number: int, pod: Request) -> WorkloadQueued:
    return WorkloadQueued(
        uid=str(number),
        name=str(number),
        project=PROJECT,
        user="",
        priority=NAMED["train"],
        preemptible=Preemptibility.NO,
        request=pod,
        created_at=float(number),
    )
