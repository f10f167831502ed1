"""How each project stands in one cycle: plain integers that every tried move changes and undoes.

``used`` includes promised room, so that what is on its way counts as had: a project cannot claim
the same right twice while victims still save their work.
"""

from dataclasses import dataclass

from carrel_scheduler.core.events import ProjectSet
from carrel_scheduler.core.fairness import UNITS, Claimant, divide
from carrel_scheduler.core.layers import Counts
from carrel_scheduler.core.nodes import NodeColumns
from carrel_scheduler.core.projects import ProjectColumns, Triple
from carrel_scheduler.core.resources import MILLI, UNLIMITED

SCALE = 1_000_000_000
RESOURCES = (0, 1, 2)
RESOURCE_NAMES = ("gpu", "cpu", "memory")


@dataclass(slots=True)
class Standing:
    """One project. All bounds may be ``UNLIMITED``.

    Attributes:
        quota: guaranteed.
        cap: never more: the limit, and the quota where borrowing is off.
        fair: its share of the cluster in this cycle.
        ceiling: what it may keep when others claim theirs: the larger of quota and fair share.
        used, fixed: held or promised, by all work and by non-preemptible work.
        total: the cluster's amounts, by which open ceilings are measured.
    """

    rule: ProjectSet
    quota: Triple
    cap: Triple
    fair: Triple
    ceiling: Triple
    used: list[int]
    fixed: list[int]
    total: Triple

    def add(self, demand: Triple, *, preemptible: bool, sign: int = 1) -> None:
        """Count work in, or out with ``sign`` -1."""
        for resource in RESOURCES:
            self.used[resource] += sign * demand[resource]
            if not preemptible:
                self.fixed[resource] += sign * demand[resource]

    def within(self, bound: Triple, demand: Triple) -> bool:
        """Whether what it has and ``demand`` stay within ``bound`` in every resource."""
        used = self.used
        return (
            (bound[0] == UNLIMITED or used[0] + demand[0] <= bound[0])
            and (bound[1] == UNLIMITED or used[1] + demand[1] <= bound[1])
            and (bound[2] == UNLIMITED or used[2] + demand[2] <= bound[2])
        )

    def share(self, demand: Triple) -> int:
        """Dominant share with ``demand``: the largest used part of a ceiling, in billionths."""
        largest = 0
        for resource in RESOURCES:
            amount = self.used[resource] + demand[resource]
            ceiling = self.ceiling[resource]
            if ceiling == UNLIMITED:
                ceiling = self.total[resource]
            part = amount * SCALE // ceiling if ceiling > 0 else amount * SCALE * 1000
            largest = max(largest, part)
        return largest


def cluster_total(nodes: NodeColumns) -> Triple:
    """What is shared out: the room of schedulable nodes, and what others' tasks hold elsewhere."""
    healthy = (nodes.usable & nodes.schedulable).sum() * MILLI
    cpu, memory = (nodes.capacity * nodes.schedulable).sum(axis=1)
    resting = ~nodes.schedulable
    used_cpu, used_memory = ((nodes.capacity - nodes.free.host) * resting).sum(axis=1)
    held = nodes.usable & resting & (nodes.free.devices < MILLI)
    return int(healthy + held.sum() * MILLI), int(cpu + used_cpu), int(memory + used_memory)


def standings(nodes: NodeColumns, columns: ProjectColumns) -> list[Standing | None]:
    """All projects by slot, with their fair shares."""
    total = cluster_total(nodes)
    used = columns.used + columns.promised
    fixed = columns.used_fixed + columns.promised_fixed
    demand = columns.used + columns.waiting
    slots = [columns.slots[name] for name in sorted(columns.slots)]
    fair = _fair_shares(columns, slots, total, demand)
    found: list[Standing | None] = [None] * len(columns.rules)
    for slot in slots:
        rule = columns.rule(slot)
        found[slot] = Standing(
            rule=rule,
            quota=rule.quota.as_tuple(),
            cap=cap_of(rule),
            fair=fair[slot],
            ceiling=_ceiling(rule, fair[slot]),
            used=[int(amount) for amount in used[slot]],
            fixed=[int(amount) for amount in fixed[slot]],
            total=total,
        )
    return found


def cap_of(rule: ProjectSet) -> Triple:
    """The most a project may ever hold: its limit, and its quota where borrowing is off."""
    limit, quota = rule.limit.as_tuple(), rule.quota.as_tuple()
    if rule.over_quota:
        return limit
    return _smaller(limit, quota)


def _smaller(one: Triple, other: Triple) -> Triple:
    a, b, c = (
        max(x, y) if UNLIMITED in (x, y) else min(x, y) for x, y in zip(one, other, strict=True)
    )
    return a, b, c


def _ceiling(rule: ProjectSet, fair: Triple) -> Triple:
    cap, quota = cap_of(rule), rule.quota.as_tuple()
    a, b, c = (UNLIMITED if quota[r] == UNLIMITED else max(quota[r], fair[r]) for r in RESOURCES)
    return _smaller(cap, (a, b, c))


def _fair_shares(
    columns: ProjectColumns, slots: list[int], total: Triple, demand: Counts
) -> dict[int, Triple]:
    shares: dict[int, list[int]] = {slot: [] for slot in slots}
    for resource in RESOURCES:
        claimants = []
        for slot in slots:
            rule = columns.rule(slot)
            claimants.append(
                Claimant(
                    name=rule.name,
                    quota=rule.quota.as_tuple()[resource],
                    limit=cap_of(rule)[resource],
                    weight=_weight(rule, total),
                    rank=rule.rank,
                    created_at=rule.created_at,
                    demand=int(demand[slot, resource]),
                )
            )
        divide(total[resource], claimants, UNITS[resource])
        for slot, claimant in zip(slots, claimants, strict=True):
            shares[slot].append(claimant.fair)
    return {slot: (gpu, cpu, memory) for slot, (gpu, cpu, memory) in shares.items()}


def _weight(rule: ProjectSet, total: Triple) -> int:
    """Weight of the surplus: given in GPUs' worth, by default the GPU quota."""
    if rule.weight is not None:
        return rule.weight * MILLI
    return total[0] if rule.quota.gpu_milli == UNLIMITED else rule.quota.gpu_milli
