"""Runs a scenario: one action once, or full cycles until the expectation holds and stays."""

from typing import Any

from carrel_scheduler.core.actions.allocate import allocate
from carrel_scheduler.core.actions.evictions import evict_stale
from carrel_scheduler.core.decide import ACTIONS, Action, decide
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.preemption.consolidate import CONSOLIDATE
from carrel_scheduler.core.preemption.rules import PREEMPT, RECLAIM
from carrel_scheduler.core.resources import MILLI
from conformance.situation import NOW, PLACED, Built, Json, build

ACTIONS_OF: dict[str, tuple[Action, ...]] = {
    "allocate": (allocate,),
    "consolidate": (CONSOLIDATE.run,),
    "reclaim": (RECLAIM.run,),
    "preempt": (PREEMPT.run,),
    "stale-gangs": (evict_stale,),
    "cycle": tuple(ACTIONS),
}
Outcome = dict[str, tuple[str, str | None]]
"""Task name -> (status, node)."""


def failures(scenario: Json) -> list[str]:
    """The reasons why a scenario fails; empty when it passes."""
    if scenario["run"] == "cycle":
        return _cycles(scenario)
    built = build(scenario)
    plan = decide(built.state, NOW, ACTIONS_OF[scenario["run"]])
    return differences(scenario, outcome(scenario, built, plan)) + node_differences(
        scenario, built, plan
    )


def _cycles(scenario: Json) -> list[str]:
    present, rounds = scenario, scenario["rounds"]
    wrong = ["no round was run"]
    for _ in range(rounds["until"]):
        present = _round(present)
        wrong = differences(scenario, _standing(present))
        if not wrong:
            break
    for _ in range(rounds["stay"] if not wrong else 0):
        present = _round(present)
        wrong = differences(scenario, _standing(present))
        if wrong:
            return ["does not stay:", *wrong]
    return wrong


def _round(scenario: Json) -> Json:
    built = build(scenario)
    plan = decide(built.state, NOW, ACTIONS)
    return after(scenario, outcome(scenario, built, plan), _held(built, plan))


def _held(built: Built, plan: Plan) -> dict[str, tuple[int, ...]]:
    """Devices of each task that has a place, by task name."""
    state, names = built.state, built.names
    found = {
        names[uid, index]: state.tasks.footprint(row).devices
        for uid, job in state.holding.items()
        for index, row in job.rows.items()
    }
    return found | {names[b.uid, b.index]: b.devices for b in plan.bindings}


def _standing(scenario: Json) -> Outcome:
    tasks = [task for job in scenario["jobs"] for task in job["tasks"]]
    return {task["name"]: (task["state"], task["node"]) for task in tasks}


def outcome(scenario: Json, built: Built, plan: Plan) -> Outcome:
    """The outcome of each task."""
    found = _standing(scenario)
    for eviction in plan.evictions:
        job = built.state.job(eviction.uid)
        for index in eviction.indices or job.running():
            found[built.names[eviction.uid, index]] = ("releasing", None)
    for nomination in plan.nominations:
        for index, place in zip(nomination.indices, nomination.places, strict=True):
            found[built.names[nomination.uid, index]] = ("nominated", place[0])
    for binding in plan.bindings:
        found[built.names[binding.uid, binding.index]] = ("binding", binding.node)
    return found


def differences(scenario: Json, found: Outcome) -> list[str]:
    """Differences between the outcome for tasks and the scenario; unknown names are left out."""
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


def node_differences(scenario: Json, built: Built, plan: Plan) -> list[str]:
    """Differences between whole GPUs of nodes, free and being released, and the scenario."""
    free, releasing = _gpus_after(built, plan)
    wrong = []
    for name, want in sorted(scenario["expect"]["nodes"].items()):
        slot = built.state.nodes.slot(name)
        for what, found in (("free", free), ("releasing", releasing)):
            if what in want and want[what] is not None and found[slot] != want[what]:
                wrong.append(f"{name}: expected {want[what]} GPUs {what}, found {found[slot]}")
    return wrong


def _gpus_after(built: Built, plan: Plan) -> tuple[list[int], list[int]]:
    nodes, tasks = built.state.nodes, built.state.tasks
    free = nodes.free.devices.astype(int)
    releasing = nodes.releasing.devices.astype(int)
    for binding in plan.bindings:
        slot = nodes.slot(binding.node)
        for device in binding.devices:
            free[device, slot] = 0
    for eviction in plan.evictions:
        job = built.state.job(eviction.uid)
        for index in eviction.indices or job.running():
            place = tasks.footprint(job.rows[index])
            for device in place.devices:
                releasing[device, place.node] += place.share
    for nomination in plan.nominations:
        for name, devices, _ in nomination.places:
            slot = nodes.slot(name)
            for device in devices:
                if releasing[device, slot]:
                    releasing[device, slot] = 0
                else:
                    free[device, slot] = 0
    return (free == MILLI).sum(axis=0).tolist(), (releasing == MILLI).sum(axis=0).tolist()


def after(scenario: Json, found: Outcome, held: dict[str, tuple[int, ...]]) -> Json:
    """The scenario one round later: what starts runs, what is evicted waits again."""
    jobs = []
    for job in scenario["jobs"]:
        stays = "releasing" if job["gone_when_evicted"] else "pending"
        states = {"binding": "running", "nominated": "pending", "releasing": stays}
        tasks = []
        for task in job["tasks"]:
            status, node = found[task["name"]]
            now: Any = states.get(status, status)
            if status == "releasing" and stays == "releasing":
                node = task["node"]
            kept = node if now in PLACED else None
            mine = held.get(task["name"]) if kept else None
            tasks.append({**task, "state": now, "node": kept, "held": mine})
        jobs.append({**job, "tasks": tasks})
    return {**scenario, "jobs": jobs}
