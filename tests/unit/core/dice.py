"""Random clusters, trees of queues and workloads: small, of every kind, the same for one seed."""

import random
from dataclasses import replace
from typing import TypeVar

from carrel_scheduler.core.events import (
    Event,
    Link,
    NodeSet,
    Preemptibility,
    QueueSet,
    TopologySet,
    WorkloadQueued,
)
from carrel_scheduler.core.gangs import Group, Growth, Level
from carrel_scheduler.core.requests import ANYWHERE, HOST, IN_GROUP, NodeConstraint, Request
from carrel_scheduler.core.resources import OPEN, UNLIMITED, ResourceVector
from carrel_scheduler.core.settings import Settings, Strategy

GIB = 1024
LEVELS = ("zone", "rack")
LICENCE = "licence"
LICENCE_MILLI = 250
"""What one counts as for a queue, in thousandths of a GPU."""


def random_settings(dice: random.Random) -> Settings:
    """Settings of a whole run."""
    return Settings(
        gpu_strategy=dice.choice((Strategy.BIN_PACK, Strategy.BIN_PACK, Strategy.SPREAD)),
        usage_factor_millionths=dice.choice((0, 0, 1_000_000)),
        saturation_milli=dice.choice((1000, 1000, 1200)),
        stale_grace_s=dice.choice((0.0, 5.0, 60.0)),
        reservation_delay_s=dice.choice((10.0, 600.0, -1.0)),
        consolidate=dice.random() < 0.8,
        min_runtime_s=dice.choice((0.0, 0.0, 6.0)),
        search_steps=dice.choice((3, 1000)),
    )


def random_nodes(dice: random.Random) -> list[NodeSet]:
    """Two to five nodes."""
    return [random_node(dice, f"n{number}") for number in range(dice.randint(2, 5))]


def random_node(dice: random.Random, name: str) -> NodeSet:
    """A node of some kind."""
    place = int(name[1:])
    labels: tuple[tuple[str, str], ...] = (
        ("rack", f"r{place % 3}"),
        ("zone", f"z{place % 3 // 2}"),
    )
    if dice.random() < 0.1:
        labels = labels[1:]
    kind = dice.choice(("four", "four", "two", "two", "mig", "none"))
    if kind == "none":
        return NodeSet(name, 0, 16_000, 64 * GIB, labels=labels)
    plain = NodeSet(
        name,
        {"four": 4, "two": 2, "mig": dice.randint(1, 2)}[kind],
        dice.choice((8_000, 32_000)),
        dice.choice((32, 256)) * GIB,
        labels=(*labels, ("gpu", kind)),
        gpu_memory_mib=dice.choice((80, 40)) * GIB,
        taints=frozenset({"reserved=yes"} if dice.random() < 0.1 else ()),
        extended=((LICENCE, 2),) if dice.random() < 0.4 else (),
        links=(Link(0, 1, 0), Link(2, 3, 0)) if kind == "four" else (),
    )
    plain = replace(plain, counted_milli=2 * LICENCE_MILLI * len(plain.extended))
    if kind == "mig":
        model = dice.choice(("A100-40GB", "A100-40GB", "A30-24GB"))
        memory = {"A100-40GB": 40, "A30-24GB": 24}[model] * GIB
        return replace(plain, mig_model=model, gpu_memory_mib=memory)
    return plain


def random_queues(dice: random.Random) -> list[QueueSet]:
    """A tree of one to three levels; two to four queues at the top."""
    found: list[QueueSet] = []
    depth = dice.randint(1, 3)

    def grow(name: str, parent: str, level: int) -> None:
        found.append(random_queue(dice, name, parent, created_at=float(len(found))))
        if level < depth and dice.random() < 0.7:
            for child in range(dice.randint(1, 2)):
                grow(f"{name}{child}", name, level + 1)

    for name in "abcd"[: dice.randint(2, 4)]:
        grow(name, "", 1)
    return found


def random_queue(
    dice: random.Random, name: str, parent: str, *, created_at: float = 0.0
) -> QueueSet:
    """Rules of a queue."""
    cpu = dice.choice((UNLIMITED, UNLIMITED, 16_000))
    memory = dice.choice((UNLIMITED, UNLIMITED, 64 * GIB))
    limit = ResourceVector(dice.choice((2, 4, 6)) * 1000, UNLIMITED, UNLIMITED)
    return QueueSet(
        name,
        ResourceVector(dice.choice((0, 1000, 1500, 2000, 4000, UNLIMITED)), cpu, memory),
        limit if dice.random() < 0.25 else OPEN,
        weight=dice.choice((None, None, (1000, 1000, 1000), (3000, 1000, 1000))),
        rank=dice.choice((0, 0, 0, 1)),
        over_quota=dice.random() < 0.85,
        created_at=created_at,
        parent=parent,
        preempt_min_runtime_s=dice.choice((None, None, 0.0, 8.0)),
        reclaim_min_runtime_s=dice.choice((None, None, 0.0, 8.0)),
    )


def leaves_of(queues: list[QueueSet]) -> list[str]:
    """Names of the queues that hold workloads."""
    parents = {queue.parent for queue in queues}
    return [queue.name for queue in queues if queue.name not in parents]


def beginning(dice: random.Random) -> list[Event]:
    """A cluster before the first workload."""
    return [TopologySet("tree", LEVELS), *random_nodes(dice), *random_queues(dice)]


EventT = TypeVar("EventT", bound=Event)
GROUPS = ("a100", "h100")


def in_groups(dice: random.Random, event: EventT) -> EventT:
    """The event in a cluster with groups of nodes, in which queues have quotas and limits."""
    group = dice.choice((*GROUPS, GROUPS[0], ""))
    if isinstance(event, NodeSet) and group:
        return replace(event, labels=(*event.labels, (IN_GROUP, group)))
    if isinstance(event, QueueSet):
        amounts = [(group, dice.choice((0, 0, 1000, 1500, 2000, 4000))) for group in GROUPS]
        quotas = tuple((group, amount) for group, amount in amounts if amount)
        limits = ((GROUPS[0], 3000),) if dice.random() < 0.15 else ()
        return replace(event, group_quotas=quotas, group_limits=limits)
    if isinstance(event, WorkloadQueued) and group and event.gang is None and dice.random() < 0.6:
        where = event.request.where
        only = replace(where, labels=(*where.labels, (IN_GROUP, frozenset({group}))))
        return replace(event, request=replace(event.request, where=only))
    return event


def random_request(dice: random.Random, where: NodeConstraint) -> Request:
    """A random request of a task."""
    form = dice.choice(("whole",) * 6 + ("share", "share", "memory", "mig", "cpu"))
    forms: dict[str, dict[str, int | str]] = {
        "whole": {"gpus": dice.choice((1, 1, 1, 2, 4))},
        "share": {"share_milli": dice.choice((250, 500, 700)), "devices": dice.choice((1, 1, 2))},
        "memory": {"gpu_memory_mib": dice.choice((5, 10, 30)) * GIB},
        "mig": {"mig_profile": dice.choice(("1g.5gb", "2g.10gb", "3g.20gb", "1g.6gb", "2g.12gb"))},
        "cpu": {},
    }
    request = Request(
        cpu_milli=dice.choice((0, 1000, 1000, 4000)),
        memory_mib=dice.choice((0, 1, 1, 16)) * GIB,
        extended=((LICENCE, 1),) if dice.random() < 0.08 else (),
        where=where,
    )
    request = replace(request, counted_milli=LICENCE_MILLI * len(request.extended))
    return replace(request, **forms[form])  # type: ignore[arg-type]


def random_where(dice: random.Random, *, gang: bool) -> NodeConstraint:
    """Conditions on nodes."""
    if dice.random() < 0.6:
        return ANYWHERE
    return NodeConstraint(
        nodes=frozenset({"n0", "n2"}) if dice.random() < 0.3 else None,
        labels=(("zone", frozenset({"z0"})),) if dice.random() < 0.3 else (),
        preferred=(("rack", frozenset({"r1"})),) if dice.random() < 0.3 else (),
        tolerations=frozenset({"reserved"} if dice.random() < 0.5 else ()),
        apart=dice.choice((HOST, "rack")) if gang and dice.random() < 0.4 else "",
    )


def random_level(dice: random.Random) -> Level | None:
    """A random topology level of a group."""
    if dice.random() < 0.6:
        return None
    required = dice.choice(("", "zone", "rack", HOST))
    return Level(required, dice.choice(("", "", "rack", HOST)) if required != HOST else "")


def random_group(dice: random.Random, name: str = "g", depth: int = 2) -> Group:
    """A tree of groups."""
    if depth and dice.random() < 0.35:
        count = dice.randint(1, 3)
        children = tuple(random_group(dice, f"{name}{i}", depth - 1) for i in range(count))
        least = dice.choice((None, None, 1, count))
        return Group(name, groups=children, min_groups=least, level=random_level(dice))
    tasks = dice.randint(1, 4)
    request = random_request(dice, random_where(dice, gang=tasks > 1))
    requests = (request,) * tasks
    if dice.random() < 0.2:
        requests = tuple(random_request(dice, random_where(dice, gang=False)) for _ in range(tasks))
    growth = dice.choice((Growth.ONE, Growth.ONE, Growth.DOUBLE))
    least = dice.choice((None, 1, tasks))
    return Group(name, requests, least, level=random_level(dice), growth=growth)


def random_workload(dice: random.Random, uid: str, project: str, now: float) -> WorkloadQueued:
    """A workload of any kind."""
    preemptible = dice.choice(
        (Preemptibility.YES,) * 4 + (Preemptibility.NO, Preemptibility.SURPLUS)
    )
    gang = random_group(dice) if dice.random() < 0.4 else None
    tasks = dice.choice((1, 1, 1, 1, 2, 3)) if gang is None else 1
    kind = WorkloadQueued(
        uid,
        uid,
        project,
        "user",
        dice.choice((10, 50, 50, 50, 80)) if preemptible is not Preemptibility.NO else 100,
        preemptible,
        random_request(dice, random_where(dice, gang=tasks > 1)),
        tasks,
        created_at=now,
        interactive=dice.random() < 0.15,
        gang=gang,
        preemption_delay_s=dice.choice((0.0, 0.0, 0.0, 9.0)),
        stale_grace_s=dice.choice((None, None, 0.0, 4.0, -1.0)),
    )
    return replace(kind, gated=frozenset({0})) if dice.random() < 0.06 else kind
