"""Words for small situations: nodes, projects and workloads in one line each."""

from typing import Any

from carrel_scheduler.core import State
from carrel_scheduler.core.events import NodeSet, ProjectSet, WorkloadQueued
from carrel_scheduler.core.invariants import check, check_plan
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.resources import OPEN, UNLIMITED, Amounts
from carrel_scheduler.simulation import Simulation

OPEN_HOST = {"cpu_milli": UNLIMITED, "memory_mib": UNLIMITED}


def node(name: str, gpus: int, *, cpu: int = 64, memory_gib: int = 256, **more: Any) -> NodeSet:
    """A node with so many GPUs, cores and GiB."""
    return NodeSet(name, gpus, cpu * 1000, memory_gib * 1024, **more)


def project(name: str, gpus: float, *, limit: float | None = None, **more: Any) -> ProjectSet:
    """A project that guarantees so many GPUs; CPU and memory are open."""
    quota = Amounts(int(gpus * 1000), UNLIMITED, UNLIMITED)
    bound = OPEN if limit is None else Amounts(int(limit * 1000), UNLIMITED, UNLIMITED)
    return ProjectSet(name, quota, bound, **more)


def training(uid: str, project: str, gpus: int = 1, **more: Any) -> WorkloadQueued:
    """A preemptible training; the uid is its name too."""
    return _workload(uid, project, gpus, {"priority": 50, "preemptible": True} | more)


def workspace(uid: str, project: str, gpus: int = 1, **more: Any) -> WorkloadQueued:
    """An interactive workspace that may not be interrupted."""
    defaults = {"priority": 100, "preemptible": False, "interactive": True}
    return _workload(uid, project, gpus, defaults | more)


def _workload(uid: str, project: str, gpus: int, more: dict[str, Any]) -> WorkloadQueued:
    cpu, memory = more.pop("cpu", 1), more.pop("memory_gib", 1)
    request = Amounts(gpus * 1000, cpu * 1000, memory * 1024)
    defaults = {"name": uid, "user": f"user-of-{project}"}
    return WorkloadQueued(uid, project=project, request=request, **(defaults | more))


def simulation(*events: NodeSet | ProjectSet, grace: float = 30.0) -> Simulation:
    """A simulation that checks all invariants before and after each plan."""
    state = State()
    for event in events:
        state.apply(event)
    return Simulation(state, grace_seconds=grace, before_plan=sound_plan, after_plan=sound_state)


def sound_plan(state: State, plan: Plan) -> None:
    """Fail when a plan breaks an invariant."""
    assert check_plan(state, plan) == []


def sound_state(state: State) -> None:
    """Fail when the state breaks an invariant."""
    assert check(state) == []
