"""A scenario in the neutral form, turned into events.

The form is described beside the shared scenarios. Memory is counted in bytes here: to the core it
is a whole number of some unit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from carrel_scheduler.core.events import (
    CheckpointSeen,
    NodeSet,
    Outcome,
    Preemptibility,
    QueueSet,
    TaskPlaced,
    TaskReleased,
    TaskReleasing,
    TaskStuck,
    TopologySet,
    WorkloadQueued,
)
from carrel_scheduler.core.gangs import Group, Level
from carrel_scheduler.core.requests import ANYWHERE, NodeConstraint, Request
from carrel_scheduler.core.resources import MILLI, UNLIMITED, ResourceVector
from carrel_scheduler.core.state import State

NOW = 1_000_000.0
DEFAULT_RANK = 100
DEFAULT_GRACE_S = 60.0
PODS = "pods"
PLACED = ("running", "releasing", "stuck")
Json = dict[str, Any]


@dataclass(frozen=True)
class Built:
    """A state, and the name of each task: (uid, index) -> name."""

    state: State
    names: dict[tuple[str, int], str]


def build(scenario: Json) -> Built:
    """The state that a scenario describes."""
    state, names = State(), {}
    for topology in scenario["topologies"]:
        state.apply(TopologySet(topology["name"], tuple(topology["levels"])))
    for node in scenario["nodes"]:
        state.apply(_node(node))
    for queue in _parents_first(scenario["queues"]):
        state.apply(_queue(queue))
    devices = Devices(state)
    for job in scenario["jobs"]:
        names.update(_add_job(state, job, devices))
    return Built(state, names)


def _node(node: Json) -> NodeSet:
    return NodeSet(
        node["name"],
        node["gpus"],
        int(node["cpu_milli"]),
        int(node["memory_bytes"]),
        labels=tuple(sorted(node["labels"].items())),
        gpu_memory_mib=node["gpu_memory_mib"],
        extended=((PODS, node["pods"]),),
    )


def _parents_first(queues: list[Json]) -> Iterator[Json]:
    left, known = list(queues), {""}
    while left:
        ready = [queue for queue in left if (queue["parent"] or "") in known]
        if not ready:
            raise ValueError(f"queues without a known parent: {[q['name'] for q in left]}")
        yield from ready
        known |= {queue["name"] for queue in ready}
        left = [queue for queue in left if queue not in ready]


def _queue(queue: Json) -> QueueSet:
    resources = [queue[name] for name in ("gpu", "cpu_milli", "memory_bytes")]
    gpu, cpu, memory = (round(resource["weight"] * MILLI) for resource in resources)
    return QueueSet(
        queue["name"],
        quota=_amounts(queue, "quota"),
        limit=_amounts(queue, "limit"),
        weight=(gpu, cpu, memory),
        rank=queue["priority"] - DEFAULT_RANK,
        created_at=float(queue["created_order"]),
        parent=queue["parent"] or "",
        reclaim_min_runtime_s=queue["reclaim_min_runtime_s"],
    )


def _amounts(queue: Json, what: str) -> ResourceVector:
    gpu, cpu, memory = (queue[r][what] for r in ("gpu", "cpu_milli", "memory_bytes"))
    return ResourceVector(
        UNLIMITED if gpu is None else round(gpu * MILLI),
        UNLIMITED if cpu is None else int(cpu),
        UNLIMITED if memory is None else int(memory),
    )


def _add_job(state: State, job: Json, devices: "Devices") -> dict[tuple[str, int], str]:
    by_group: dict[str, list[Json]] = {}
    for task in job["tasks"]:
        by_group.setdefault(task["group"], []).append(task)
    tasks: list[Json] = []
    gang = _group(job["gang"], by_group, tasks)
    uid = job["name"]
    state.apply(
        WorkloadQueued(
            uid,
            uid,
            job["queue"],
            "user",
            job["priority"],
            Preemptibility.YES if job["preemptible"] else Preemptibility.NO,
            created_at=NOW - job["age_s"],
            gang=gang,
            preemption_delay_s=job["preemption_delay_s"] or 0.0,
            stale_grace_s=DEFAULT_GRACE_S if job["stale_grace_s"] is None else job["stale_grace_s"],
        )
    )
    started = NOW - (job["last_start_age_s"] or 0)
    placed = [
        i for i, task in enumerate(tasks) if task["state"] in (*PLACED, "succeeded", "failed")
    ]
    for index in placed:
        task = tasks[index]
        node = task["node"] or scenario_node(state)
        state.apply(TaskPlaced(uid, index, node, devices.choose(task, node), at=started))
    state.apply(CheckpointSeen(uid, NOW))
    for index in placed:
        _bring_to(state, uid, index, tasks[index], job)
    return {(uid, index): task["name"] for index, task in enumerate(tasks)}


def _bring_to(state: State, uid: str, index: int, task: Json, job: Json) -> None:
    match task["state"]:
        case "releasing":
            state.apply(TaskReleasing(uid, index))
        case "stuck":
            state.apply(TaskReleasing(uid, index))
            state.apply(TaskStuck(uid, index))
        case "succeeded" | "failed" as ended:
            state.apply(TaskReleased(uid, index, Outcome(ended), NOW - (job["stale_for_s"] or 0)))


def scenario_node(state: State) -> str:
    """A node on which a task that has ended may have run."""
    return min(state.nodes.slots)


def _group(group: Json, by_group: dict[str, list[Json]], tasks: list[Json]) -> Group:
    level = group["topology"]
    wishes = (level[key] or "" for key in ("required", "preferred", "topology")) if level else ()
    at = Level(*wishes) if level else None
    if group["groups"]:
        children = tuple(_group(child, by_group, tasks) for child in group["groups"])
        return Group(group["name"], groups=children, min_groups=group["min_groups"], level=at)
    mine = sorted(by_group.get(group["name"], ()), key=lambda task: -(task["priority"] or 0))
    tasks += mine
    least = min(group["min_tasks"], len(mine))
    return Group(group["name"], tuple(_request(task) for task in mine), min_tasks=least, level=at)


def _request(task: Json) -> Request:
    nodes = task["node_names"]
    where = ANYWHERE if nodes is None else NodeConstraint(nodes=frozenset(nodes))
    return Request(
        gpus=task["gpus"],
        cpu_milli=int(task["cpu_milli"]),
        memory_mib=int(task["memory_bytes"]),
        share_milli=round((task["gpu_fraction"] or 0) * MILLI),
        gpu_memory_mib=task["gpu_memory_mib"] or 0,
        devices=task["devices"],
        extended=((PODS, 1),),
        where=where,
    )


class Devices:
    """Gives devices to tasks that run: the same group on a node means the same device."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._groups: dict[tuple[str, str], int] = {}

    def choose(self, task: Json, node: str) -> tuple[int, ...]:
        """Devices of a task on its node; ``held`` says which since an earlier round."""
        if task.get("held") is not None:
            return tuple(task["held"])
        if task["gpus"]:
            return tuple(self._free(node)[: task["gpus"]])
        if not (task["gpu_fraction"] or task["gpu_memory_mib"]):
            return ()
        names = task["gpu_groups"]
        if not names:
            return (self._tightest(node, round((task["gpu_fraction"] or 0) * MILLI)),)
        return tuple(sorted(self._device(node, name) for name in names[: task["devices"]]))

    def _tightest(self, node: str, share: int) -> int:
        """A device that is shared already and has room, else a free one."""
        free = self._state.nodes.free.devices[:, self._state.nodes.slot(node)].tolist()
        shared = [(milli, d) for d, milli in enumerate(free) if max(share, 1) <= milli < MILLI]
        return min(shared)[1] if shared else self._free(node)[0]

    def _device(self, node: str, group: str) -> int:
        key = (node, group)
        if key not in self._groups:
            self._groups[key] = self._free(node)[0]
        return self._groups[key]

    def _free(self, node: str) -> list[int]:
        slot = self._state.nodes.slot(node)
        free = self._state.nodes.free.devices[:, slot].tolist()
        taken = {device for (name, _), device in self._groups.items() if name == node}
        return [d for d, milli in enumerate(free) if milli == MILLI and d not in taken]
