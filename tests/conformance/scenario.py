"""A scenario in the neutral form, turned into events; its expectation, compared with a plan.

The form is described beside the shared scenarios. Memory is counted in millions of bytes here, so
that the round figures of scenarios stay whole numbers.
"""

from dataclasses import dataclass
from typing import Any

from carrel_scheduler.core import State
from carrel_scheduler.core.events import (
    CheckpointSeen,
    NodeSet,
    ProjectSet,
    TaskPlaced,
    TaskReleasing,
    WorkloadQueued,
)
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.resources import UNLIMITED, Amounts

NOW = 1_000_000.0
DEFAULT_RANK = 100
MEGABYTE = 1_000_000
PLACED = ("running", "releasing")
Outcome = dict[str, tuple[str, str | None]]
"""Task name -> (status, node)."""


@dataclass(frozen=True)
class Built:
    """A state and the names of its tasks: (uid, index) -> task name."""

    state: State
    names: dict[tuple[str, int], str]


def build(scenario: dict[str, Any]) -> Built:
    """The state that a scenario describes."""
    state, names = State(), {}
    for node in scenario["nodes"]:
        memory = int(node["memory_bytes"]) // MEGABYTE
        state.apply(NodeSet(node["name"], node["gpus"], int(node["cpu_milli"]), memory))
    weighed_by = "gpu" if any(node["gpus"] for node in scenario["nodes"]) else "cpu_milli"
    parents = {queue["parent"] for queue in scenario["queues"]}
    for queue in scenario["queues"]:
        if queue["name"] not in parents:
            state.apply(_project(queue, weighed_by))
    for job in scenario["jobs"]:
        names.update(_add_job(state, job))
    return Built(state, names)


def outcome(built: Built, plan: Plan) -> Outcome:
    """What becomes of each task."""
    found: Outcome = {}
    starts = {(b.uid, b.index): b.node for b in plan.bindings}
    held = {n.uid: n.places for n in plan.nominations}
    evicted = {eviction.uid for eviction in plan.evictions}
    for (uid, index), name in built.names.items():
        view = built.state.workload(uid)
        place = next((p for p in view.places if p.index == index), None)
        if place is not None:
            stops = place.releasing or uid in evicted
            found[name] = ("releasing" if stops else "running", place.node)
        elif (uid, index) in starts:
            found[name] = ("binding", starts[uid, index])
        elif held.get(uid):
            found[name] = ("nominated", held[uid][index][0])
        else:
            found[name] = ("pending", None)
    return found


def differences(scenario: dict[str, Any], found: Outcome) -> list[str]:
    """Where the outcome is not what the scenario expects; node figures are left out."""
    expected = dict(scenario["expect"]["tasks"])
    for job in scenario["jobs"]:
        whole = scenario["expect"]["jobs"].get(job["name"])
        for task in job["tasks"] if whole else ():
            expected.setdefault(task["name"], whole)
    return [
        f"{name}: expected {want}, found {found[name]}"
        for name, want in sorted(expected.items())
        if name in found
        and (
            found[name][0] != want["status"]
            or (want.get("node") and found[name][1] not in (None, want["node"]))
        )
    ]


def after(scenario: dict[str, Any], found: Outcome) -> dict[str, Any]:
    """The scenario one round later: what starts runs, what is evicted waits again."""
    jobs = []
    for job in scenario["jobs"]:
        stays = "releasing" if job["gone_when_evicted"] else "pending"
        states = {"binding": "running", "nominated": "pending", "releasing": stays}
        tasks = []
        for task in job["tasks"]:
            status, node = found.get(task["name"], (task["state"], task["node"]))
            now = states.get(status, status)
            tasks.append({**task, "state": now, "node": node if now in PLACED else None})
        jobs.append({**job, "tasks": tasks})
    return {**scenario, "jobs": jobs}


def _project(queue: dict[str, Any], weighed_by: str) -> ProjectSet:
    """A project has one weight: that for GPUs, or for CPUs in a cluster without any."""
    return ProjectSet(
        queue["name"],
        quota=_amounts(queue, "quota"),
        limit=_amounts(queue, "limit"),
        weight=int(queue[weighed_by]["weight"]),
        rank=queue["priority"] - DEFAULT_RANK,
        created_at=float(queue["created_order"]),
    )


def _amounts(queue: dict[str, Any], what: str) -> Amounts:
    gpu, cpu, memory = (queue[r][what] for r in ("gpu", "cpu_milli", "memory_bytes"))
    return Amounts(
        UNLIMITED if gpu is None else int(gpu * 1000),
        UNLIMITED if cpu is None else int(cpu),
        UNLIMITED if memory is None else int(memory) // MEGABYTE,
    )


def _add_job(state: State, job: dict[str, Any]) -> dict[tuple[str, int], str]:
    tasks = job["tasks"]
    first = tasks[0]
    request = Amounts(
        first["gpus"] * 1000,
        int(first["cpu_milli"]),
        -(-int(first["memory_bytes"]) // MEGABYTE),
    )
    nodes = first["node_names"]
    state.apply(
        WorkloadQueued(
            job["name"],
            job["name"],
            job["queue"],
            "user",
            job["priority"],
            job["preemptible"],
            request,
            tasks=len(tasks),
            created_at=NOW - job["age_s"],
            nodes=None if nodes is None else frozenset(nodes),
        )
    )
    started = NOW - (job["last_start_age_s"] or 0)
    for index, task in enumerate(tasks):
        if task["state"] in PLACED:
            devices = _free_devices(state, task["node"], task["gpus"])
            state.apply(TaskPlaced(job["name"], index, task["node"], devices, at=started))
        if task["state"] == "releasing":
            state.apply(TaskReleasing(job["name"], index))
    state.apply(CheckpointSeen(job["name"], NOW))
    return {(job["name"], index): task["name"] for index, task in enumerate(tasks)}


def _free_devices(state: State, node: str, gpus: int) -> tuple[int, ...]:
    view = next(view for view in state.node_views() if view.name == node)
    free = [device.index for device in view.devices if device.free_milli]
    return tuple(free[:gpus])
