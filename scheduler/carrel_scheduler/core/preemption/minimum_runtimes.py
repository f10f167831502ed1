"""Minimum run times: how long a workload is left alone before others may make it give way."""

from carrel_scheduler.core.queues.rules import RuleTable


def preempt_protects_s(table: RuleTable, leaf: int, default: float = 0.0) -> float:
    """Against work of its own queue: the nearest queue from the leaf up that says so, in seconds.

    Args:
        table: the rules.
        leaf: the slot of the queue.
        default: where none says so.
    """
    for slot in table.path[leaf]:
        rule = table.rules[slot]
        if rule is not None and rule.preempt_min_runtime_s is not None:
            return rule.preempt_min_runtime_s
    return default


def reclaim_protects_s(
    table: RuleTable, claimer_leaf: int, victim_leaf: int, default: float = 0.0
) -> float:
    """Against work of another queue, in seconds.

    The queue right below the lowest common ancestor on the victim's side decides, then those above
    it: a department's rule protects against other departments, a project's own rule against the
    projects beside it.
    """
    common = set(table.path[claimer_leaf])
    path = table.path[victim_leaf]
    parting = max(sum(slot not in common for slot in path) - 1, 0)
    for slot in path[parting:]:
        rule = table.rules[slot]
        if rule is not None and rule.reclaim_min_runtime_s is not None:
            return rule.reclaim_min_runtime_s
    return default
