"""Which scenarios are within what the core knows, and what each other one needs."""

from typing import Any

KNOWN_LATER = {
    "departments": "several departments, or one with a quota or limit of its own",
    "deep-tree": "queues below projects",
    "fractions": "shares of a GPU and requests in GPU memory",
    "topology": "required and preferred levels",
    "elastic": "gangs with fewer required than existing tasks",
    "nested-gangs": "groups of tasks within a gang",
    "unequal-tasks": "different requests within a gang",
    "mixed-states": "gangs of which only some tasks run",
    "consolidation": "moving running work to make room",
    "stale-gangs": "evicting gangs that lost members",
    "preemption-delay": "waiting before evicting others",
    "minimum-runtime": "protection after a start",
    "stuck": "tasks that do not end when told to",
    "ended-tasks": "tasks that succeeded or failed inside a workload",
}
"""Feature -> what it means. A scenario that needs any of these is not run yet."""


def needs(scenario: dict[str, Any]) -> set[str]:
    """The features of ``KNOWN_LATER`` that a scenario needs."""
    found = set().union(*(_job_needs(job) for job in scenario["jobs"]))
    if scenario["topologies"]:
        found.add("topology")
    if scenario["run"] == "consolidate":
        found.add("consolidation")
    if scenario["run"] == "stale-gangs":
        found.add("stale-gangs")
    return found | _tree_needs(scenario["queues"])


def _tree_needs(queues: list[dict[str, Any]]) -> set[str]:
    found = set()
    tops = [queue for queue in queues if queue["parent"] is None]
    bound = any(
        queue[resource][what] is not None
        for queue in tops
        for resource in ("gpu", "cpu_milli", "memory_bytes")
        for what in ("quota", "limit")
    )
    if len(tops) > 1 or bound:
        found.add("departments")
    top_names = {queue["name"] for queue in tops}
    if any(queue["parent"] not in top_names for queue in queues if queue["parent"] is not None):
        found.add("deep-tree")
    if any(queue["reclaim_min_runtime_s"] is not None for queue in queues):
        found.add("minimum-runtime")
    return found


def _job_needs(job: dict[str, Any]) -> set[str]:
    tasks, found = job["tasks"], set()
    leaves = _leaves(job["gang"])
    states = {task["state"] for task in tasks}
    requests = {
        (t["gpus"], t["cpu_milli"], t["memory_bytes"], tuple(t["node_names"] or ())) for t in tasks
    }
    conditions = {
        "nested-gangs": len(leaves) > 1,
        "elastic": leaves[0]["min_tasks"] != len(tasks),
        "unequal-tasks": len(requests) > 1,
        "mixed-states": len(states) > 1,
        "stuck": "stuck" in states,
        "ended-tasks": bool(states & {"succeeded", "failed"}),
        "preemption-delay": job["preemption_delay_s"] is not None,
        "stale-gangs": job["stale_for_s"] is not None,
        "fractions": any(_is_share(task) for task in tasks),
    }
    found |= {feature for feature, needed in conditions.items() if needed}
    return found


def _is_share(task: dict[str, Any]) -> bool:
    return bool(task["gpu_fraction"] or task["gpu_memory_mib"] or task["gpu_groups"])


def _leaves(group: dict[str, Any]) -> list[dict[str, Any]]:
    if not group["groups"]:
        return [group]
    return [leaf for child in group["groups"] for leaf in _leaves(child)]
