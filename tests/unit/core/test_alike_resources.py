"""CPU and memory are divided, guaranteed, limited and taken back by the same rules as GPUs.

The same story is told with work that asks for GPUs only, under quotas of GPUs, or for CPU, or for
memory, a thousand units for each GPU. Whoever starts, stops, waits and why must be the same. Only
the surplus is divided differently, GPUs by whole ones: with GPUs nobody may borrow here.
And where all three are asked for, bounded and short, CPU and memory can change places.
"""

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from carrel_scheduler.core.events import (
    CheckpointSeen,
    NodeSet,
    Preemptibility,
    QueueSet,
    WorkloadQueued,
)
from carrel_scheduler.core.gangs import Group
from carrel_scheduler.core.plan import Plan
from carrel_scheduler.core.reasons import Reason
from carrel_scheduler.core.requests import Request
from carrel_scheduler.core.resources import UNLIMITED, ResourceVector
from carrel_scheduler.core.settings import Settings
from unit.core.runs import Run

pytestmark = pytest.mark.slow

NAMES = ("gpu", "cpu", "memory")
UNIT = 1000
Told = list[object]


def amounts(resource: int, value: int) -> ResourceVector:
    parts = [UNLIMITED] * 3
    parts[resource] = value
    return ResourceVector(*parts)


def asking(resource: int) -> Request:
    return (Request(gpus=1), Request(cpu_milli=UNIT), Request(memory_mib=UNIT))[resource]


def cluster(resource: int, units: int) -> NodeSet:
    most = 1 << 30
    if resource == 0:
        return NodeSet("n", units, most, most)
    return NodeSet("n", 0, units * UNIT if resource == 1 else most,
                   units * UNIT if resource == 2 else most)  # fmt: skip


def rules(dice: random.Random, resource: int, *, borrowing: bool) -> Iterator[QueueSet]:
    for name, parent in (("d", ""), ("e", ""), ("a", "d"), ("b", "d"), ("c", "e"), ("f", "")):
        quota = dice.choice((0, 1, 2, 3)) * UNIT
        limit = dice.choice((UNLIMITED, UNLIMITED, 5 * UNIT))
        weight = [1000, 1000, 1000]
        weight[resource] = dice.choice((1000, 2000, 3000))
        yield QueueSet(
            name, amounts(resource, quota), amounts(resource, limit),
            (weight[0], weight[1], weight[2]), rank=dice.choice((0, 0, 1)),
            over_quota=dice.random() < 0.8 and borrowing, parent=parent,
            reclaim_min_runtime_s=dice.choice((None, 0.0, 4.0)),
        )  # fmt: skip


def workload(dice: random.Random, uid: str, asked: Request) -> WorkloadQueued:
    tasks = dice.choice((1, 1, 1, 2, 3))
    least = dice.choice((0, 1)) if tasks > 1 else 0
    kind = dice.choice((Preemptibility.YES, Preemptibility.YES, Preemptibility.NO,
                        Preemptibility.SURPLUS))  # fmt: skip
    return WorkloadQueued(
        uid, project=dice.choice("abcf"), name=uid, user="u", request=asked,
        gang=Group(requests=(asked,) * tasks, min_tasks=least or None),
        priority=dice.choice((40, 50, 60)), preemptible=kind,
    )  # fmt: skip


def decided(plan: Plan, resource: int) -> Told:
    """The decisions, and why everything waits, with the resource's name left out."""
    return [
        sorted((one.uid, one.index, one.node) for one in plan.bindings),
        sorted((one.uid, one.indices, one.moved, one.reason.token) for one in plan.evictions),
        sorted((one.uid, len(one.places)) for one in plan.nominations),
        list(plan.queue),
        [(uid, alike(reason, resource)) for uid, reason in sorted(plan.reasons.items())],
    ]


def alike(reason: Reason, resource: int) -> Reason:
    """Borrowing is told of GPUs only; who gives way on a node is known for each device only."""
    coming = bool(reason.workload_uid)
    holders = [] if coming else [replace(one, borrowed=False) for one in reason.holders]
    name = reason.resource.replace(NAMES[resource], "it")
    return replace(reason, resource=name, holders=tuple(holders))


def story(seed: int, resource: int, *, borrowing: bool = True) -> Iterator[Told]:
    dice = random.Random(seed)
    factor = dice.choice((0, 1_000_000))
    run = Run(
        cluster(resource, dice.randint(5, 9)),
        *rules(dice, resource, borrowing=borrowing),
        settings=Settings(usage_factor_millionths=factor),
        checked=False,
    )
    for number in range(25):
        run.now += dice.choice((0.0, 1.0, 5.0))
        run.submit(workload(dice, f"w{number:02}", asking(resource)))
        if run.running() and dice.random() < 0.3:
            run.tell(CheckpointSeen(dice.choice(run.running()), run.now))
        if run.running() and dice.random() < 0.25:
            run.finish(dice.choice(run.running()))
        yield decided(run.wait(1.0), resource)
        yield [run.sizes(), [run.state.queues.used[:, resource].tolist()]]


@pytest.mark.parametrize("seed", range(16))
def test_memory_is_decided_upon_like_cpu(seed: int) -> None:
    for step, (cpu, memory) in enumerate(zip(story(seed, 1), story(seed, 2), strict=True)):
        assert memory == cpu, f"step {step}"


@pytest.mark.parametrize("seed", range(16))
def test_gpus_are_decided_upon_like_cpu(seed: int) -> None:
    of_cpu, of_gpus = (story(seed, resource, borrowing=False) for resource in (1, 0))
    for step, (cpu, gpus) in enumerate(zip(of_cpu, of_gpus, strict=True)):
        assert gpus == cpu, f"step {step}"


def mixed(seed: int, places: tuple[int, int, int]) -> Iterator[Told]:
    """A story of all three resources; ``places``: which of three drawn amounts each gets.

    Quotas differ a little, since queues that are equal in all else are served by their GPUs first,
    then by CPU, then by memory.
    """
    dice = random.Random(seed)

    def three(choices: tuple[int, ...], spread: int = 0) -> tuple[int, int, int]:
        drawn = [dice.choice(choices) * UNIT + dice.randint(0, spread) for _ in NAMES]
        return drawn[places[0]], drawn[places[1]], drawn[places[2]]

    run = Run(
        NodeSet("n", dice.randint(4, 9), *three((5, 7, 8, 11))[1:]),
        *(replace(rule, quota=ResourceVector(*three((0, 1, 2, 3), spread=400)),
                  limit=ResourceVector(*three((5, 6, 99))), weight=three((1, 2, 3)))
          for rule in rules(dice, 0, borrowing=True)),
        settings=Settings(usage_factor_millionths=dice.choice((0, 1_000_000))),
        checked=False,
    )  # fmt: skip
    for number in range(40):
        gpus, (_, cpu, memory) = dice.choice((0, 1, 1, 1, 2)), three((0, 1, 1, 2))
        asked = Request(gpus=gpus, cpu_milli=cpu, memory_mib=memory)
        run.submit(workload(dice, f"w{number:02}", asked))
        if dice.random() < 0.5:
            continue
        if run.running() and dice.random() < 0.4:
            run.finish(dice.choice(run.running()))
        yield decided(run.wait(dice.choice((1.0, 2.0, 6.0))), 0)[:-1]


@pytest.mark.parametrize("seed", range(16))
def test_cpu_and_memory_can_change_places(seed: int) -> None:
    as_they_are, exchanged = mixed(seed, (0, 1, 2)), mixed(seed, (0, 2, 1))
    for step, (one, other) in enumerate(zip(as_they_are, exchanged, strict=True)):
        assert one == other, f"step {step}"
