"""Quotas in groups of nodes on small clusters, against every set of victims there is.

Work arrives, ends and is stopped until nothing changes any more. Then nobody who is within its
queue's quota in a group waits while some set of others' work could give way for it there.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations

import pytest

from carrel_scheduler.core.events import NodeSet, Preemptibility, QueueSet
from carrel_scheduler.core.requests import IN_GROUP, NodeConstraint, Request
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.runs import Run
from unit.core.situations import node, queue, training

GROUPS = ("a100", "h100")
OWNERS = ("a", "b", "c")


@dataclass(frozen=True)
class Held:
    """What a job of one task holds, and on which node."""

    uid: str
    owner: str
    node: str
    gpus: int
    preemptible: bool


def cluster(dice: random.Random) -> tuple[list[NodeSet], list[QueueSet]]:
    nodes = [
        node(f"{group}{number}", dice.choice((2, 4)), labels=((IN_GROUP, group),))
        for group in GROUPS
        for number in range(dice.choice((1, 2)))
    ]
    department = dice.random() < 0.3
    queues = [_queue(dice, "d", "")] if department else []
    for owner in OWNERS[: dice.choice((2, 3))]:
        above = "d" if department and owner != "a" else ""
        queues += [_queue(dice, owner, above)]
    return nodes, queues


def _queue(dice: random.Random, name: str, parent: str) -> QueueSet:
    quotas = tuple((group, dice.choice((0, 1000, 2000, 3000, 4000))) for group in GROUPS)
    if dice.random() < 0.4:
        quotas = quotas[:1] if dice.random() < 0.5 else ()
    return queue(name, dice.choice((0, 2, 4, 8)), parent=parent, group_quotas=quotas)


def told(seed: int) -> Run:
    """A run that has come to rest, with every invariant checked on the way."""
    dice = random.Random(seed)
    nodes, queues = cluster(dice)
    run = Run(*nodes, *queues)
    owners = [rule.name for rule in queues if rule.name != "d"]
    for step in range(3):
        for number in range(dice.randint(2, 6)):
            kinds = (Preemptibility.YES,) * 6 + (Preemptibility.NO,)
            only = dice.choice((None, *GROUPS, *GROUPS))
            labels = () if only is None else ((IN_GROUP, frozenset({only})),)
            request = Request(gpus=dice.choice((1, 1, 2)), where=NodeConstraint(labels=labels))
            run.submit(
                training(
                    f"w{step}-{number}",
                    dice.choice(owners),
                    request=request,
                    preemptible=dice.choice(kinds),
                )
            )
        run.settle()
        for uid in run.running():
            if dice.random() < 0.2:
                run.finish(uid)
        run.settle()
    return run


def holders(run: Run) -> list[Held]:
    tasks, names = run.state.tasks, run.state.nodes.names
    return [
        Held(
            job.uid,
            job.spec.project,
            names[tasks.node.item(row)],
            tasks.footprint(row).amounts[0] // 1000,
            job.spec.preemptible is Preemptibility.YES,
        )
        for _, job in sorted(run.state.holding.items())
        for row in job.rows.values()
    ]


def path(run: Run, owner: str) -> list[str]:
    state = run.state
    return [state.queues.rule(slot).name for slot in state.queues.path(state.queues.slots[owner])]


def guaranteed(run: Run, name: str, group: str) -> int:
    rules = [rule for rule in run.state.queues.rules if rule is not None]
    mine = next(rule for rule in rules if rule.name == name)
    own = dict(mine.group_quotas).get(group)
    if own is not None:
        return own // 1000
    return sum(guaranteed(run, rule.name, group) for rule in rules if rule.parent == name)


def used(run: Run, name: str, group: str) -> int:
    return sum(
        one.gpus
        for one in holders(run)
        if one.node.startswith(group) and name in path(run, one.owner)
    )


def legal(run: Run, owner: str, demand: int, group: str, victims: tuple[Held, ...]) -> bool:
    """Whether all of these may give way for so many GPUs of a queue by its quota in the group.

    Where their paths part, the preemptor's side stays within its quota and the victims' side is
    beyond its own, at every level that side has, until the largest of them goes.
    """
    mine = path(run, owner)
    for victim in victims:
        theirs = path(run, victim.owner)
        shared = [name for name in theirs if name in mine]
        rival = mine[len(mine) - len(shared) - 1]
        if used(run, rival, group) + demand > guaranteed(run, rival, group):
            return False
        for level in theirs[: len(theirs) - len(shared)]:
            gone = [v.gpus for v in victims if level in path(run, v.owner)]
            beyond = used(run, level, group) - guaranteed(run, level, group)
            if sum(gone) - max(gone) >= beyond:
                return False
    return True


def enough(run: Run, group: str, demand: int, victims: tuple[Held, ...]) -> bool:
    every = holders(run)
    for fact in run.state.nodes.facts:
        if fact is not None and fact.name.startswith(group):
            here = sum(one.gpus for one in every if one.node == fact.name)
            freed = sum(one.gpus for one in victims if one.node == fact.name)
            if fact.devices - here + freed >= demand:
                return True
    return False


def sets(run: Run, owner: str, group: str) -> Iterator[tuple[Held, ...]]:
    some = [
        one
        for one in holders(run)
        if one.preemptible and one.owner != owner and one.node.startswith(group)
    ]
    return chain.from_iterable(combinations(some, size) for size in range(1, 4))


def waits_wrongly(run: Run) -> list[str]:
    """Who waits although a set of others could give way for it by a quota in a group."""
    found = []
    waiting = [job for job in run.state.jobs.by_uid.values() if job.pending() and not job.rows]
    for job in sorted(waiting, key=lambda job: job.uid):
        demand, owner = job.shape.total[0] // 1000, job.spec.project
        for group in GROUPS:
            if _may_run_in(job, group) and not _fixed_is_barred(run, job):
                for victims in sets(run, owner, group):
                    if legal(run, owner, demand, group, victims) and enough(
                        run, group, demand, victims
                    ):
                        gives = [one.uid for one in victims]
                        found.append(f"{job.uid} of {owner} waits for {group}: {gives}")
                        break
    return found


def _may_run_in(job: JobInfo, group: str) -> bool:
    labels = dict(job.shape.requests[0].where.labels)
    return IN_GROUP not in labels or group in labels[IN_GROUP]


def _fixed_is_barred(run: Run, job: JobInfo) -> bool:
    """Non-preemptible work has bounds of its own: quotas in all, and others' guarantees."""
    return job.spec.preemptible is not Preemptibility.YES


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_nobody_within_a_quota_in_a_group_waits_for_what_is_beyond_others(first: int) -> None:
    claims = 0
    for seed in range(first, first + 20):
        run = told(seed)
        assert waits_wrongly(run) == [], seed
        claims += sum(map(len, run.evicted.values()))
    assert claims
