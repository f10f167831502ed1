"""Combine against every set of victims, on small full clusters: served wherever the rules allow."""

import random
from collections.abc import Sequence
from itertools import combinations

import pytest

from carrel_scheduler.core.cycle.cycle import Cycle
from carrel_scheduler.core.decide import decide
from carrel_scheduler.core.events import Event
from carrel_scheduler.core.preemption.legality import ReclaimRequest
from carrel_scheduler.core.preemption.preempt_and_reclaim import PREEMPT_AND_RECLAIM
from carrel_scheduler.core.preemption.rules import PREEMPT, RECLAIM
from carrel_scheduler.core.queues.usage import QueueUsage
from carrel_scheduler.core.state import State
from carrel_scheduler.core.work.jobs import JobInfo
from unit.core.invariants.evictions import check_plan
from unit.core.situations import node, queue, running, state_of, training, workspace

pytestmark = pytest.mark.slow

NOW = 1000.0
SEEDS, LEAST_SERVED = range(500), 10
EQUAL = (1000, 1000, 1000)


def situation(seed: int) -> tuple[State, int, int]:
    """A state in which `urgent` of project `a` waits; how many tasks it has, of how many GPUs."""
    dice = random.Random(seed)
    sizes = [dice.choice((2, 3, 4)) for _ in range(dice.randint(1, 3))]
    names = "abc"[: dice.randint(2, 3)]
    events: list[Event] = [node(f"n{place}", size) for place, size in enumerate(sizes)]
    events += [queue(n, dice.randint(0, 4), weight=dice.choice((None, EQUAL))) for n in names]
    for place, size in enumerate(sizes):
        begin = 0
        while begin < size:
            devices = range(begin, min(begin + dice.choice((1, 1, 1, 2)), size))
            begin, name, uid = devices.stop, dice.choice(names), f"{place}-{devices.start}"
            made = training if dice.random() < 0.85 else workspace
            priority = dice.choice((10, 20))
            work = made(uid, name, len(devices), priority=priority)
            events += running(work, f"n{place}", *devices, at=dice.choice((100.0, 500.0, 900.0)))
    tasks, gpus = dice.choice((1, 1, 2)), dice.choice((1, 2, 2, 3, 4))
    events.append(training("urgent", "a", gpus, tasks=tasks, priority=80))
    return state_of(*events), tasks, gpus


def makes_room(state: State, gone: Sequence[str], tasks: int, gpus: int) -> bool:
    free = {int(slot): state.nodes.fact(slot).devices for slot in state.nodes.slots.values()}
    for uid, job in state.holding.items():
        if uid not in gone:
            free[int(state.tasks.node[job.rows[0]])] -= job.shape.total[0] // 1000
    return sum(left // gpus for left in free.values()) >= tasks


def lawful(state: State, gone: Sequence[str]) -> bool:
    """Whether these may give way, the own ones first, the others in some order."""
    queue_usage, urgent = Cycle(state, NOW).queue_usage, state.job("urgent")
    others = []
    for uid in gone:
        job = state.job(uid)
        if job.queue == urgent.queue:
            queue_usage.add(job.queue, job.shape.total, sign=-1)
        else:
            others.append((job.queue, job.shape.total))
    claim = ReclaimRequest(queue_usage, urgent.queue, urgent.shape.first)
    if any(is_covered(state, queue_usage, state.job(uid)) for uid in gone):
        return False

    def legal(left: list[tuple[int, tuple[int, int, int]]]) -> bool:
        for victim in set(left):
            if claim.legal(*victim):
                queue_usage.add(*victim, sign=-1)
                rest = left.copy()
                rest.remove(victim)
                fine = legal(rest)
                queue_usage.add(*victim)
                if fine:
                    return True
        return not left

    return not others or (claim.may and legal(others))


def is_covered(state: State, queue_usage: QueueUsage, victim: JobInfo) -> bool:
    """Whether work of another queue is kept for its priority, once what ``gone`` says has left.

    Without what is preemptible and lower, its queue holds no more than it keeps of every resource:
    its quota against a queue within quota, else the larger of quota and fair share.
    """
    urgent, queue = state.job("urgent"), victim.queue
    if queue == urgent.queue:
        return False
    quota, fair = queue_usage.quota, queue_usage.fair[queue]
    lower = [
        job.shape.total
        for job in state.holding.values()
        if job.queue == queue and job.evictable and job.spec.priority < victim.spec.priority
    ]
    if not lower:
        return False
    within = queue_usage.within(quota[urgent.queue], urgent.queue, urgent.shape.first)
    used = queue_usage.used[queue]
    return all(
        used[r] - sum(one[r] for one in lower)
        <= (quota[queue][r] if within else max(quota[queue][r], fair[r]))
        for r in range(3)
    )


def test_it_is_served_wherever_a_set_of_victims_is_lawful() -> None:
    served = 0
    for seed in SEEDS:
        state, tasks, gpus = situation(seed)
        alone = decide(state, NOW, (RECLAIM.run, PREEMPT.run))
        if alone.evictions or makes_room(state, (), tasks, gpus):
            continue
        plan = decide(state, NOW, (PREEMPT_AND_RECLAIM.run,))
        assert check_plan(state, plan, NOW) == []
        found = [one.uid for one in plan.evictions]
        if found:
            assert lawful(state, found), seed
            assert makes_room(state, found, tasks, gpus), seed
            served += 1
            continue
        victims = [uid for uid, job in state.holding.items() if job.evictable]
        sets = (some for size in range(len(victims)) for some in combinations(victims, size + 1))
        missed = (s for s in sets if makes_room(state, s, tasks, gpus) and lawful(state, s))
        assert next(missed, None) is None, seed
    assert served >= LEAST_SERVED
