"""Builders of small situations: nodes, queues and workloads in one line each."""

from collections.abc import Iterable
from typing import Any

import pytest

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.cycle.failed_searches import Find, OfferResult, unless_failed_before
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import (
    CapacityReserved,
    Event,
    NodeSet,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    TaskReleasing,
    WorkloadQueued,
)
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.preemption import preemptors
from carrel_scheduler.core.reasons import Reason
from carrel_scheduler.core.requests import NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI, OPEN, UNLIMITED, ResourceVector
from carrel_scheduler.core.settings import DEFAULTS, Settings
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobInfo

NOW = 100.0


def node(name: str, gpus: int, *, cpu: int = 64, memory_gib: int = 256, **more: Any) -> NodeSet:
    """A node with so many GPUs, cores and GiB."""
    return NodeSet(name, gpus, cpu * 1000, memory_gib * 1024, **more)


def queue(
    name: str, gpus: float = UNLIMITED, *, limit: float | None = None, **more: Any
) -> QueueSet:
    """A queue that guarantees so many GPUs; CPU and memory are open."""
    quota = ResourceVector(_milli(gpus), UNLIMITED, UNLIMITED)
    bound = OPEN if limit is None else ResourceVector(_milli(limit), UNLIMITED, UNLIMITED)
    return QueueSet(name, quota, bound, **more)


def _milli(gpus: float) -> int:
    return UNLIMITED if gpus == UNLIMITED else round(gpus * MILLI)


def asking(gpus: float = 1, *, cpu: float = 1, memory_gib: float = 1, **more: Any) -> Request:
    """A request: whole GPUs, or a share of one."""
    whole = int(gpus)
    defaults: dict[str, Any] = {
        "gpus": whole,
        "share_milli": 0 if whole else round(gpus * MILLI),
        "cpu_milli": round(cpu * MILLI),
        "memory_mib": round(memory_gib * 1024),
    }
    return Request(**(defaults | more))


def training(uid: str, project: str, gpus: float = 1, **more: Any) -> WorkloadQueued:
    """A preemptible training; the uid is its name too.

    ``cpu``, ``memory_gib`` and ``nodes`` (names) change the request, ``request`` replaces it.
    """
    return _workload(uid, project, gpus, {"priority": 50, "preemptible": Preemptibility.YES} | more)


def workspace(uid: str, project: str, gpus: float = 1, **more: Any) -> WorkloadQueued:
    """An interactive workspace that may not be interrupted; arguments as for ``training``."""
    defaults = {"priority": 100, "preemptible": Preemptibility.NO, "interactive": True}
    return _workload(uid, project, gpus, defaults | more)


def _workload(uid: str, project: str, gpus: float, more: dict[str, Any]) -> WorkloadQueued:
    amounts: dict[str, Any] = {
        name: more.pop(name) for name in ("cpu", "memory_gib") if name in more
    }
    names = more.pop("nodes", None)
    if names is not None:
        amounts["where"] = NodeConstraint(nodes=frozenset(names))
    defaults: dict[str, Any] = {
        "name": uid,
        "user": f"user-of-{project}",
        "request": asking(gpus, **amounts),
    }
    return WorkloadQueued(uid, project=project, **(defaults | more))


def running(
    queued: WorkloadQueued, place: str, *devices: int, at: float = 1.0
) -> tuple[Event, Event]:
    """A workload of one task that runs."""
    return queued, TaskPlaced(queued.uid, 0, place, devices, at=at)


def state_of(*events: Event, settings: Settings = DEFAULTS) -> State:
    """The state after these events."""
    state = State(settings)
    apply(state, events)
    return state


def apply(state: State, events: Iterable[Event]) -> None:
    """Tell the state many events."""
    for event in events:
        state.apply(event)


def reasons(*events: Event, now: float = NOW) -> dict[str, Reason]:
    """The reasons that a decision gives after these events."""
    return dict(decide(state_of(*events), now).reasons)


def carry_out(state: State, plan: Plan, now: float) -> None:
    """Tell the state what an engine would tell that begins everything in the plan at once."""
    bindings, nominations = plan.bindings, plan.nominations
    stops = [(e.uid, e.indices or tuple(state.job(e.uid).running())) for e in plan.evictions]
    for uid, indices in stops:
        apply(state, [TaskReleasing(uid, index) for index in indices])
    for nomination in nominations:
        if not nomination.places:
            state.apply(CapacityReserved(nomination.uid))
    for binding in bindings:
        state.apply(
            TaskPlaced(
                binding.uid, binding.index, binding.node, binding.devices, now, binding.slots
            )
        )
    for nomination in nominations:
        if nomination.places:
            state.apply(CapacityReserved(nomination.uid, nomination.places, nomination.indices))


def searches_made(monkeypatch: pytest.MonkeyPatch, action: str) -> list[str]:
    """A list that gets the uid of each for whom an action searches for victims from now on."""
    made: list[str] = []

    def counted(
        cycle: Cycle, name: str, job: JobInfo, step: tuple[int, ...], find: Find
    ) -> OfferResult:
        def noted(*asked: Any) -> OfferResult:
            made.extend([job.spec.uid] if name == action else [])
            return find(*asked)

        return unless_failed_before(cycle, name, job, step, noted)

    monkeypatch.setattr(preemptors, "unless_failed_before", counted)
    return made


def gang(tasks: int, *, least: int | None = None, level: Level | None = None) -> Group:
    return Group(requests=(asking(1),) * tasks, min_tasks=least, level=level)
